"""`mlcbuild init` writes the BUILD.toml of a new workspace, which loads as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mlcbuild.cli.main import main
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.rules.analysis import analyse
from mlcbuild.rules.backend import backends
from tests.cli.conftest import at_eighty_columns
from tests.compiler.tiny_models import TINY, checkpoint, write_config, write_gguf
from tests.execution.fetch.conftest import Site, sites

__all__ = ["sites"]

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in which one stands, below a folder without a workspace."""
    root = tmp_path / "first"
    root.mkdir()
    monkeypatch.chdir(root)
    monkeypatch.setattr("mlcbuild.cli.init.build_file.find_root", _no_workspace_above(tmp_path))
    return root


def _no_workspace_above(top: Path) -> Callable[[Path], Path]:
    """`find_root` without what lies above the test's own folder."""
    from mlcbuild.errors import WorkspaceError
    from mlcbuild.workspace.settings import find_root

    def find(start: Path) -> Path:
        found = find_root(start)
        if top not in (found, *found.parents):
            raise WorkspaceError("none")
        return found

    return find


def gguf(path: Path, **values: object) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    config = {**TINY, **values}
    return write_gguf(path, checkpoint(config), config)


def folder(path: Path, *, weights: bool = True, **values: object) -> Path:
    path.mkdir(parents=True)
    write_config(path / "config.json", {**TINY, **values})
    if weights:
        (path / "model.safetensors").write_bytes(b"")
        (path / "tokenizer.json").write_text("{}")
    return path


def targets(root: Path) -> dict[str, str]:
    """What the workspace has, analysed: label → quantization."""
    opened = open_workspace(root, to_load=True)
    loaded = opened.load(["//..."], "")
    analyse(loaded, opened.rules)
    return {
        str(label): str(loaded.targets[label].get("quantization"))
        for label in loaded.requested
        if "quantization" in loaded.targets[label].schema.by_name
    }


def test_a_gguf_file_becomes_a_package_for_each_kind_of_platform(
    root: Path, snapshot: Snapshot, capsys: Capture
) -> None:
    gguf(root / "weights/Tiny-Llama.Q4_1.gguf")
    assert main(["init", "weights/Tiny-Llama.Q4_1.gguf"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{root}/BUILD.toml\n"
    snapshot("init-gguf", (root / "BUILD.toml").read_text() + "--\n" + at_eighty_columns(err))
    assert targets(root) == {"//:tiny-llama-cpu": "q4f32_1", "//:tiny-llama-cuda": "q4f16_1"}


def test_the_doctor_counts_the_targets_of_the_new_workspace_alone(root: Path, capsys: Capture) -> None:
    gguf(root / "tiny.gguf")
    assert main(["init"]) == 0
    assert main(["doctor", "workspace"]) == 0
    assert "3 targets, no errors" in capsys.readouterr().out


def test_a_repository_is_written_without_a_network(root: Path, snapshot: Snapshot, capsys: Capture) -> None:
    assert main(["init", "hf:Owner/Tiny-Model"]) == 0
    snapshot("init-hf", (root / "BUILD.toml").read_text() + "--\n" + at_eighty_columns(capsys.readouterr().err))
    assert list(targets(root)) == ["//:tiny-model-cpu", "//:tiny-model-cuda"]


def test_a_repository_is_pinned_and_then_fetched(
    root: Path, sites: list[Site], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    site, commits = sites[0], ("1" * 40, "2" * 40)
    monkeypatch.setenv("HF_ENDPOINT", site.url)
    monkeypatch.setenv("XDG_CACHE_HOME", str(root.parent / "cache"))

    def publish(commit: str) -> None:
        files = {"config.json": b"{}", "model.safetensors": commit.encode(), "README.md": b"r"}
        listing = {"sha": commit, "siblings": [{"rfilename": name} for name in files]}
        for name in ("main", commit):
            site.pages[f"/api/models/Owner/Tiny/revision/{name}"] = json.dumps(listing).encode()
        site.pages |= {f"/Owner/Tiny/resolve/{commit}/{name}": content for name, content in files.items()}

    publish(commits[0])
    assert main(["init", "hf:Owner/Tiny"]) == 0
    assert main(["fetch", "//:tiny-files"]) != 0, "it has no pin yet"
    assert main(["fetch", "--update", "//:tiny-files"]) == 0
    assert f"main of Owner/Tiny is at {commits[0]}" in capsys.readouterr().err
    assert f'revision = "{commits[0]}"' in (root / "BUILD.toml").read_text()
    assert main(["fetch", "//:tiny-files"]) == 0

    # A revision stays, unless the target names a branch to follow.
    publish(commits[1])
    before = (root / "BUILD.toml").read_text()
    assert main(["fetch", "--update", "//:tiny-files"]) == 0
    assert (root / "BUILD.toml").read_text() == before
    (root / "BUILD.toml").write_text(before.replace("revision =", 'branch = "main"\nrevision ='))
    assert main(["fetch", "--update", "//:tiny-files"]) == 0
    after = (root / "BUILD.toml").read_text()
    assert f'revision = "{commits[1]}"' in after
    assert commits[0] not in after
    assert main(["fetch", "//:tiny-files"]) == 0


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        (f"hf:o/n@{'a' * 40}", f'revision = "{"a" * 40}"'),
        ("hf:o/n@v1.0", 'branch = "v1.0"'),
        ("hf:o/n/sub/m.Q4_0.gguf", 'files = ["sub/m.Q4_0.gguf"]'),
    ],
)
def test_a_revision_or_file_of_a_repository_can_be_named(root: Path, argument: str, line: str) -> None:
    assert main(["init", argument]) == 0
    assert line in (root / "BUILD.toml").read_text().splitlines()
    assert targets(root)


def test_the_only_model_of_the_folder_is_taken_without_an_argument(root: Path) -> None:
    folder(root / "Tiny")
    assert main(["init"]) == 0
    assert list(targets(root)) == ["//:tiny-cpu", "//:tiny-cuda"]


def test_of_several_models_none_is_taken_and_all_are_named(root: Path, capsys: Capture) -> None:
    folder(root / "One")
    gguf(root / "two.gguf")
    assert main(["init"]) == 0
    assert "models here: One, two.gguf; `mlcbuild init MODEL`" in capsys.readouterr().err
    assert targets(root) == {}


def test_without_a_model_the_file_shows_how_to_begin(root: Path, snapshot: Snapshot, capsys: Capture) -> None:
    assert main(["init"]) == 0
    snapshot("init-empty", (root / "BUILD.toml").read_text() + "--\n" + at_eighty_columns(capsys.readouterr().err))
    assert targets(root) == {}
    text = (root / "BUILD.toml").read_text().replace("# [[", "[[").replace("# name =", "name =")
    for key in ("source", "model", "quantization", "platform"):
        text = text.replace(f"# {key} =", f"{key} =")
    (root / "BUILD.toml").write_text(text)
    folder(root / "weights/my-model")
    assert len(targets(root)) == 2, "the example is right as it stands"


def test_a_folder_that_is_itself_the_model(root: Path) -> None:
    write_config(root / "config.json", TINY)
    (root / "model.safetensors").write_bytes(b"")
    (root / "tokenizer.json").write_text("{}")
    assert main(["init", "."]) == 0
    assert list(targets(root)) == ["//:first-cpu", "//:first-cuda"]


def test_a_model_elsewhere_is_linked(root: Path, tmp_path: Path, capsys: Capture) -> None:
    folder(tmp_path / "elsewhere/Tiny")
    assert main(["init", "../elsewhere/Tiny"]) == 0
    assert (root / "Tiny").readlink() == tmp_path / "elsewhere/Tiny"
    assert f"Tiny is a link to {tmp_path}/elsewhere/Tiny" in capsys.readouterr().err
    assert list(targets(root)) == ["//:tiny-cpu", "//:tiny-cuda"]


def test_a_snapshot_of_hugging_faces_cache_has_the_name_of_its_repository(root: Path, tmp_path: Path) -> None:
    commit = tmp_path / f"hub/models--Owner--Tiny-1B/snapshots/{'a' * 40}"
    folder(commit)
    assert main(["init", str(commit)]) == 0
    assert list(targets(root)) == ["//:tiny-1b-cpu", "//:tiny-1b-cuda"]


def test_a_model_without_weights_becomes_libraries(root: Path, capsys: Capture) -> None:
    folder(root / "shape", weights=False)
    assert main(["init", "shape"]) == 0
    assert list(targets(root)) == ["//:shape-cpu-lib", "//:shape-cuda-lib"]
    assert "mlcbuild run" not in capsys.readouterr().err


def test_a_target_and_its_folder_never_have_one_name(root: Path) -> None:
    folder(root / "tiny")
    assert main(["init", "tiny"]) == 0
    assert list(targets(root)) == ["//:tiny-model-cpu", "//:tiny-model-cuda"]


def test_a_quantization_that_the_shapes_forbid_is_not_proposed(root: Path) -> None:
    folder(root / "Odd", hidden_size=40, intermediate_size=90, head_dim=16)
    assert main(["init", "Odd"]) == 0
    assert targets(root) == {"//:odd-cpu": "q0f32", "//:odd-cuda": "q0f16"}
    text = (root / "BUILD.toml").read_text().replace("\n# ", " ")
    assert "Not q4f16_1: model.embed_tokens.weight has 40 columns, which groups of 32 do not divide." in text


def test_a_kind_of_platform_that_cannot_run_the_model_gets_no_target_and_a_reason(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    kinds = dict(backends())
    kinds["cuda"] = replace(kinds["cuda"], kv_state_kinds=())
    monkeypatch.setattr("mlcbuild.rules.proposals.backends", lambda: kinds)
    folder(root / "Tiny")
    assert main(["init", "Tiny"]) == 0
    assert (
        "no target for kind cuda: kind cuda has no kernels for the kv_cache of models of the family llama; "
        "see `mlcbuild info --legal`\n"
    ) in capsys.readouterr().err
    assert targets(root) == {"//:tiny-cpu": "q4f32_1"}


def test_a_family_that_is_not_supported_is_an_error_with_the_reason(root: Path, capsys: Capture) -> None:
    folder(root / "New", model_type="llamba")
    assert main(["init", "New"]) == 2
    err = capsys.readouterr().err
    assert 'New/config.json: the field "model_type" is "llamba", which is not supported' in err
    assert "`mlcbuild info --legal` what they can be built for" in err
    assert not (root / "BUILD.toml").exists()


def test_what_makes_a_model_impossible_is_told(root: Path, capsys: Capture) -> None:
    folder(root / "Quantized", quantization_config={"quant_method": "aqlm"})
    assert main(["init", "Quantized"]) == 2
    assert "the weights are quantized already (aqlm)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("absent", "the workspace is written where you are"),
        ("absent/model", "a Hugging Face repository is written hf:owner/name"),
        ("hf:owner", '"hf:owner" is not a repository'),
        ("hf:o/n/README.md", '"README.md" is no GGUF file'),
        ("empty", "empty holds no model"),
        ("adapter", "adapter holds an adapter (LORA), not a model"),
        ("text.txt", "text.txt"),
    ],
)
def test_what_is_no_model_is_an_error_of_the_command_line(
    root: Path, capsys: Capture, argument: str, told: str
) -> None:
    (root / "empty").mkdir()
    (root / "adapter").mkdir()
    (root / "adapter" / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (root / "text.txt").write_text("hello, this is no model at all")
    assert main(["init", argument]) == 2
    assert told in capsys.readouterr().err
    assert not (root / "BUILD.toml").exists()


def test_a_gguf_file_whose_tokenizer_no_build_can_read_is_an_error_at_once(root: Path, capsys: Capture) -> None:
    write_gguf(root / "tiny.gguf", checkpoint(TINY), TINY, pre="unheard-of")
    assert main(["init", "tiny.gguf"]) == 2
    assert 'the tokenizer cuts text by the rule "unheard-of", which is not known' in capsys.readouterr().err
    assert not (root / "BUILD.toml").exists()


def test_an_existing_file_is_never_changed(root: Path, capsys: Capture) -> None:
    gguf(root / "tiny.gguf")
    (root / "BUILD.toml").write_text("# mine\n")
    assert main(["init", "tiny.gguf"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {root}/BUILD.toml exists already; nothing was written\n")
    assert (root / "BUILD.toml").read_text() == "# mine\n"


def test_a_workspace_around_is_named(root: Path, capsys: Capture) -> None:
    (root.parent / "BUILD.toml").write_text('[workspace]\nname = "outer"\n')
    assert main(["init"]) == 0
    assert f"this folder is below the workspace {root.parent}, and has become one of its own" in capsys.readouterr().err


def test_commands_outside_a_workspace_name_init(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir("/")
    assert main(["query", "//..."]) == 7
    assert capsys.readouterr().err == (
        "error: no workspace at or above /\n"
        "  the root of a workspace has a BUILD.toml with a [workspace] table\n"
        "  `mlcbuild init` writes one here\n"
    )


def test_init_imports_nothing_heavy(root: Path) -> None:
    gguf(root / "tiny.gguf")
    program = (
        "import json, sys; from mlcbuild.cli.main import main; code = main(['init', 'tiny.gguf']);"
        "print(json.dumps([code, sorted({'tvm', 'ray', 'boto3', 'torch'} & set(sys.modules))]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [0, []]
