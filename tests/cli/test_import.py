"""`mlcbuild import` reads the specification files of MLC-LLM, and says what it cannot map."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlcbuild.cli.init.json_places import JsonFile, Keys, read_json
from mlcbuild.cli.main import main
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.rules.analysis import analyse
from tests.cli.conftest import at_eighty_columns
from tests.compiler.tiny_models import checkpoint, write_gguf

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]

CONVERTED = "mlc-ai/Llama-3.2-3B-Instruct-q4f16_1-MLC"
PACKAGE_CONFIG = """\
{
  "device": "android",
  "model_list": [
    {
      "model": "HF://mlc-ai/Llama-3.2-3B-Instruct-q4f16_1-MLC",
      "estimated_vram_bytes": 4679979417,
      "model_id": "Llama-3.2-3B",
      "overrides": {"prefill_chunk_size": 128}
    },
    {
      "model": "HF://Qwen/Qwen2-1.5B-Instruct",
      "estimated_vram_bytes": 3980990464,
      "model_id": "Qwen2-1.5B",
      "bundle_weight": true
    }
  ]
}
"""
LIB_DELIVERY = """\
{
  "binary_libs_dir": "libs",
  "default_compile_options": [
    {"device": "cuda", "overrides": {"context_window_size": 4096}},
    {"device": "vulkan"},
    {"device": "cuda:0", "overrides": {"context_window_size": 1024, "tensor_parallel_shards": 2, "x": 1}}
  ],
  "default_quantization": ["q0f16", "q4f16_1"],
  "tasks": [
    {"model_id": "Llama-3-8B", "model": "HF://meta-llama/Meta-Llama-3-8B", "quantization": ["q4f16_unknown", "q0f16"]},
    {"model_id": "Mistral-7B", "model": "HF://mistralai/Mistral-7B-Instruct-v0.3"},
    {"model_id": "Tiny", "model": "weights/tiny.gguf", "compile_options": [{"device": "cpu"}]},
    {"model_id": "Gone", "model": "weights/gone"}
  ]
}
"""
DELIVERY = """\
{
  "default_destination": "{username}/{model_id}-{quantization}-MLC",
  "default_quantization": ["q4f16_1"],
  "default_overrides": {"q4f16_1": {"context_window_size": 2048}},
  "tasks": [
    {"model_id": "Phi-3", "model": "HF://microsoft/Phi-3-mini-128k-instruct", "conv_template": "phi-3",
     "quantization": ["q0f16"], "overrides": {"q0f16": {"context_window_size": 512, "sliding_window_size": null}}},
    {"model_id": "Qwen", "model": "https://huggingface.co/Qwen/Qwen2.5-0.5B", "conv_template": "chatml",
     "quantization": "q4f32_1", "gen_config_only": true}
  ]
}
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "BUILD.toml").write_text('[workspace]\nname = "around"\n')  # whatever there is above the tests
    root = tmp_path / "imported"
    (root / "weights").mkdir(parents=True)
    write_gguf(root / "weights/tiny.gguf", checkpoint())
    monkeypatch.chdir(root)
    return root


def imported(root: Path, text: str, capsys: Capture) -> str:
    """The file and the notes of an import."""
    (root / "spec.json").write_text(text)
    assert main(["import", "spec.json"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{root}/BUILD.toml\n"
    err = at_eighty_columns(err.replace(str(root.parent), "<tmp>"))
    return (root / "BUILD.toml").read_text().replace(str(root.parent), "<tmp>") + "--\n" + err


def targets(root: Path) -> Mapping[str, object]:
    """The targets, analysed: label → overrides."""
    opened = open_workspace(root, to_load=True)
    loaded = opened.load(["//..."], "")
    analyse(loaded, opened.rules)
    return {
        str(label): loaded.targets[label].get("overrides")
        for label in loaded.requested
        if "quantization" in loaded.targets[label].schema.by_name
    }


def test_the_models_of_an_app(root: Path, snapshot: Snapshot, capsys: Capture) -> None:
    snapshot("import-package-config", imported(root, PACKAGE_CONFIG, capsys))
    assert targets(root) == {}, "android has no platform"


def test_a_device_with_a_platform_makes_targets_of_an_app(root: Path, capsys: Capture) -> None:
    imported(root, PACKAGE_CONFIG.replace("android", "cuda").replace(CONVERTED, "meta-llama/Llama-3.2-3B"), capsys)
    found = targets(root)
    assert list(found) == ["//:llama-3.2-3b-q4f16_1-cuda", "//:qwen2-1.5b-q4f16_1-cuda"]
    assert found["//:llama-3.2-3b-q4f16_1-cuda"] == {"prefill_chunk_size": 128}


def test_libraries_for_every_option_and_quantization(root: Path, snapshot: Snapshot, capsys: Capture) -> None:
    snapshot("import-lib-delivery", imported(root, LIB_DELIVERY, capsys))
    found = targets(root)
    assert len(found) == 3 * 2 * 2 + 2
    assert found["//:mistral-7b-q0f16-cuda"] == {"context_window_size": 4096}
    assert found["//:mistral-7b-q0f16-cuda-2"] == {"context_window_size": 1024}
    assert found["//:tiny-q4f16_1-cpu"] == {}


def test_packages_for_every_quantization_with_its_overrides(root: Path, snapshot: Snapshot, capsys: Capture) -> None:
    snapshot("import-delivery", imported(root, DELIVERY, capsys))
    assert {label: found for label, found in targets(root).items() if label.endswith("-cpu")} == {
        "//:phi-3-q0f16-cpu": {"context_window_size": 512},
        "//:phi-3-q4f16_1-cpu": {"context_window_size": 2048},
        "//:qwen-q4f16_1-cpu": {"context_window_size": 2048},
        "//:qwen-q4f32_1-cpu": {},
    }


def test_what_is_written_as_a_comment_is_valid_without_the_marks(root: Path, capsys: Capture) -> None:
    imported(root, PACKAGE_CONFIG, capsys)
    keys = ("# [[", "# name =", "# repository =", "# files =", "# source =", "# matrix =", "# overrides =")
    lines = (root / "BUILD.toml").read_text().splitlines()
    (root / "BUILD.toml").write_text("\n".join(line[2:] if line.startswith(keys) else line for line in lines))
    assert len(targets(root)) == 4


def test_programs_get_the_places(root: Path, capsys: Capture) -> None:
    (root / "spec.json").write_text(LIB_DELIVERY)
    assert main(["import", "spec.json", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["file"], document["targets"]) == (f"{root}/BUILD.toml", 14)
    assert {
        "location": "spec.json:5:16",
        "message": 'there is no platform for the device "vulkan"',
        "advice": "known: cpu, cuda",
    } in document["not_mapped"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"tasks": [1]}', "error.json:1:12: this value must be an object"),
        ('{"tasks": [{}]}', 'error.json:1:12: "model_id" must be a string; it is missing'),
        ('{\n "model_list": []}', 'error.json:1:1: "device" must be a string; it is missing'),
        ('{"other": 1}', "error.json:1:1: not a file of MLC-LLM that can be imported"),
        ('{"tasks": [}', "error.json:1:12: not valid JSON: Expecting value"),
        ("[]", "error.json:1:1: this value must be an object"),
    ],
)
def test_another_file_is_an_error_at_its_place(root: Path, capsys: Capture, text: str, told: str) -> None:
    (root / "error.json").write_text(text)
    assert main(["import", "error.json"]) == 7
    assert capsys.readouterr().err.splitlines()[0] == told
    assert not (root / "BUILD.toml").exists()


def test_nothing_is_overwritten(root: Path, capsys: Capture) -> None:
    (root / "BUILD.toml").write_text("# mine\n")
    (root / "spec.json").write_text(DELIVERY)
    assert main(["import", "spec.json"]) == 2
    assert (root / "BUILD.toml").read_text() == "# mine\n"
    assert "exists already; nothing was written" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_an_error_of_the_command_line(root: Path, capsys: Capture) -> None:
    assert main(["import", "absent.json"]) == 2
    assert capsys.readouterr().err.startswith("error: absent.json cannot be read: No such file")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(values, st.sampled_from([None, 0, 1]))
def test_every_value_of_any_json_has_its_place(
    tmp_path_factory: pytest.TempPathFactory, value: object, indent: int | None
) -> None:
    file = tmp_path_factory.mktemp("json") / "x.json"
    file.write_text(json.dumps(value, indent=indent), encoding="utf-8")
    read = read_json(file, path="x.json")
    lines = read.text.split("\n")
    expected = dict(walk(value))
    assert read.offsets.keys() == expected.keys()
    for keys, inner in expected.items():
        place = read.location(keys)
        rest = "\n".join([lines[place.line - 1][place.column - 1 :], *lines[place.line :]])
        assert json.JSONDecoder().raw_decode(rest)[0] == inner


def walk(value: object, keys: Keys = ()) -> list[tuple[Keys, object]]:
    found: list[tuple[Keys, object]] = [(keys, value)]
    if isinstance(value, dict):
        found += [each for key, inner in value.items() for each in walk(inner, (*keys, key))]
    if isinstance(value, list):
        found += [each for index, inner in enumerate(value) for each in walk(inner, (*keys, index))]
    return found


def test_the_place_of_what_is_absent_is_that_of_what_would_hold_it() -> None:
    file = JsonFile(path="x.json", text="", content={}, offsets={(): 0})
    assert str(file.location(("a", 1))) == "x.json:1:1"
