"""From a BUILD.toml to generated text: a tiny model runs through every stage, by the commands that users type."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from mlcbuild.cli.main import main
from tests.compiler.tiny_models import checkpoint, write_gguf
from tests.end_to_end.kernel_cache import KernelCache
from tests.release.documents import bill_of_materials, components, dependencies, hashes, properties, statement

pytestmark = pytest.mark.slow

BUILD_FILE = """\
[workspace]
name = "tiny"

[[model]]
name = "model"
source = "tiny.gguf"

[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v2"

[[model_package]]
name = "package"
model = ":model"
quantization = "q0f32"
platform = ":cpu"
overrides = { context_window_size = 64, prefill_chunk_size = 16 }

[[platform]]
name = "newer"
kind = "cpu"
cpu = "x86-64-v3"

[[model_package]]
name = "other"
model = ":model"
quantization = "q0f32"
platform = ":newer"
overrides = { context_window_size = 64, prefill_chunk_size = 16 }

[[logits_test]]
name = "check"
package = ":other"
reference = ":package"
prompts = ["hello", "world and more"]
max_tokens = 3
tolerance = 0.001

[[logits_test]]
name = "{file}-logits"
matrix = { file = ["own", "other", "no"] }
package = ":package"
reference_file = "{file}.npz"
tolerance = 0.0001

[[perplexity_test]]
name = "perplexity-{window}"
matrix = { window = [16, 64, 65] }
package = ":package"
text = "long.txt"

[[perplexity_test]]
name = "bound"
package = ":package"
text = "long.txt"
max_perplexity = 1.5

[[answer_test]]
name = "{match}"
matrix = { match = ["exact", "regex"] }
package = ":package"
prompt = "hello"
raw = true
expected = "^.+"
max_tokens = 3

[[answer_test]]
name = "chat"
package = ":package"
prompt = "hello"
expected = "world"

[[speed_test]]
name = "speed"
package = ":package"
prefill_tokens = 20
decode_tokens = 3
min_decode_tokens_per_second = 0.001

[[speed_test]]
name = "too-fast"
package = ":package"
decode_tokens = 3
prefill_tokens = 3
min_prefill_tokens_per_second = 1e12

[[speed_test]]
name = "too-long"
package = ":package"
min_prefill_tokens_per_second = 1
"""
RUN = ["run", ":package", "--", "--raw", "--prompt", "hello", "--max-tokens", "5", "--threads", "1"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, kernel_cache: KernelCache) -> Iterator[Path]:
    """A workspace with a tiny model, and a store beside it."""
    directory = tmp_path_factory.mktemp("model")
    root = directory / "workspace"
    root.mkdir()
    (root / "BUILD.toml").write_text(BUILD_FILE)
    write_gguf(root / "tiny.gguf", checkpoint())
    (root / "long.txt").write_text("hello world and more words than a context has room for\n" * 4)
    for name in ("own", "other", "no"):
        (root / f"{name}.npz").write_bytes(b"PK")
    with kernel_cache.used_by(root, directory / "cache"):
        yield root


@pytest.fixture(autouse=True)
def _inside(root: Path, warm_workers: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    for name, value in {**warm_workers, "XDG_CACHE_HOME": str(root.parent / "cache")}.items():
        monkeypatch.setenv(name, value)


def test_a_package_is_built_and_speaks(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", ":package", "--build-report", "report.json"]) == 0
    paths = capsys.readouterr().out.split()
    names = {Path(path).name for path in paths}
    assert {"lib.so", "mlc-chat-config.json", "tensor-cache.json", "params_shard_0.bin", "tokenizer.json"} <= names
    assert all((root / path).is_file() for path in paths)
    report = json.loads(Path("report.json").read_text())
    assert report["actions"]["failed"] == 0
    assert report["critical_path"][-1]["mnemonic"] == "Link"

    assert main([*RUN, "--stats"]) == 0
    first = capsys.readouterr()
    assert "up to date" not in first.err, "nothing to build, nothing to say"
    assert " tokens/s · then " in first.err
    assert main(RUN) == 0
    again = capsys.readouterr()
    assert (again.out, again.err) == (first.out, "")
    assert len(first.out) > 1

    assert main(["build", ":package", "--build-report", "report.json"]) == 0
    actions = json.loads(Path("report.json").read_text())["actions"]
    assert actions["up_to_date"] == actions["total"]

    assert main(["run", ":package", "--", "--raw", "--prompt", "x " * 200]) == 2
    assert "the model's context is 64" in capsys.readouterr().err


def test_the_kernels_of_a_target_are_timed_by_names_that_people_read(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--prompt", "8", "--context", "4", "--tokens", "2", "--rounds", "1"]
    folder = "mlcbuild-out/default/package"
    assert main(["bench", ":package", folder, *sizes, "--threads", "1", "--output", "json"]) == 0
    told, of_path = json.loads(capsys.readouterr().out)["subjects"]
    assert (told["subject"], told["weights"]) == ("//:package", "its own")
    assert of_path["subject"].endswith(folder)
    for workload in told["workloads"]:
        products = [each for each in workload["kernels"] if "matmul" in each["text"] and each["operations"]]
        assert any("qkv_proj" in each["text"] for each in products), workload["phase"]


def test_a_package_says_what_another_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", ":check", "--output=json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["tests"].values()
    figures = found["figures"]
    assert (found["status"], found["cached"], figures["steps"]) == ("PASSED", False, 6)
    assert 0 < figures["largest_error"] < 0.001 < figures["largest_reference"]
    assert main(["test", ":check", "--output=json"]) == 0
    (again,) = json.loads(capsys.readouterr().out)["tests"].values()
    assert (again["cached"], again["figures"]) == (True, figures)


def test_each_kind_of_test_passes_or_says_why_not(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--logits", "own.npz", "--logits-of", "all"]) == 0
    with np.load("own.npz") as arrays:
        np.savez("other.npz", tokens=arrays["tokens"], logits=arrays["logits"] + 1)
    capsys.readouterr()
    assert main(["test", "//:all", "--output=json"]) == 3
    tests = {label.removeprefix("//:"): found for label, found in json.loads(capsys.readouterr().out)["tests"].items()}
    passed = {name for name, found in tests.items() if found["status"] == "PASSED"}
    assert passed == {"check", "own-logits", "perplexity-16", "perplexity-64", "regex", "speed"}
    assert tests["perplexity-16"]["figures"]["tokens"] == tests["perplexity-64"]["figures"]["tokens"] > 64
    assert tests["speed"]["figures"]["decode_tokens_per_second"] > 0
    why = {
        "bound": "at most 1.5",
        "chat": 'expected "world"',
        "exact": 'expected "^.+"',
        "no-logits": "no.npz is no file of logits",
        "other-logits": "largest error 1, at most 0.0001",
        "perplexity-65": "windows of 65 tokens do not fit the model's context of 64",
        "too-fast": "at least 1e+12",
        "too-long": "do not fit the model's context of 64",
    }
    assert {name: found["summary"] for name, found in tests.items() if name not in passed}.keys() == why.keys()
    assert [name for name, said in why.items() if said not in tests[name]["summary"]] == []
    assert tests["bound"]["figures"]["perplexity"] > 1.5, "a figure is kept of a test that failed"


def test_a_release_of_packages_says_what_they_are_made_of(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to, packages = root.parent / "release", {"//:package": "cpu", "//:other": "newer"}
    licensed = "//:model.license=Apache-2.0"
    assert main(["release", *packages, "--build", "--unsigned", "--set", licensed, "--to", str(to)]) == 0
    capsys.readouterr()
    assert main(["build", *packages, "--build-report", "report.json"]) == 0
    keys = json.loads(Path("report.json").read_text())["keys"]
    capsys.readouterr()
    assert main(["aquery", "//:package + //:other + //:model", "--output", "json"]) == 0
    used = [each["toolchains"] for each in json.loads(capsys.readouterr().out)["actions"]]
    toolchains = {name: digest for each in used for name, digest in each.items()}
    assert "tvm" in toolchains

    found = components(to)
    weights = hashlib.sha256((root / "tiny.gguf").read_bytes()).hexdigest()
    model = found["model //:model"]
    assert (model["type"], model["licenses"]) == ("machine-learning-model", [{"license": {"id": "Apache-2.0"}}])
    assert [(each["name"], hashes(each)["SHA-256"]) for each in model["components"]] == [("tiny.gguf", weights)]
    assert found["quantization q0f32"]["name"] == "q0f32"
    told = {name.removeprefix("toolchain "): each for name, each in found.items() if name.startswith("toolchain ")}
    assert {name: properties(each)["toolchain-fingerprint"] for name, each in told.items()} == toolchains
    (tvm,) = [each for each in told["tvm"]["components"] if each["name"] == "apache-tvm"]
    assert (tvm["version"], tvm["licenses"]) == (importlib.metadata.version("apache-tvm"), model["licenses"])

    subjects = {each["name"]: each["digest"]["sha256"] for each in statement(to)["subject"]}
    needs = {each["ref"]: set(each.get("dependsOn", ())) for each in bill_of_materials(to)["dependencies"]}
    for label, platform in packages.items():
        folder = label.removeprefix("//:")
        files = {path.name: path for path in (root / "mlcbuild-out/default" / folder).rglob("*") if path.is_file()}
        digests = {f"{folder}/{name}": hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
        assert f"{folder}/lib.so" in digests
        assert {each["name"]: hashes(each)["SHA-256"] for each in found[label]["components"]} == digests
        assert digests.items() <= subjects.items()
        assert properties(found[label]) == {
            "label": label,
            "rule": "model_package",
            "folder": folder,
            "platform": f"//:{platform}",
            "quantization": "q0f32",
        }
        assert needs[label] >= {"model //:model", "quantization q0f32", "toolchain tvm"}
    assert needs["release"] == set(packages)

    made_of = dependencies(to)
    assert made_of["tiny.gguf"]["digest"]["sha256"] == weights
    assert {name: made_of[f"toolchain {name}"]["digest"]["sha256"] for name in toolchains} == toolchains
    predicate = statement(to)["predicate"]
    assert predicate["buildDefinition"]["externalParameters"]["targets"] == sorted(packages)
    by_action = {each["name"]: each["digest"]["blake3"] for each in predicate["runDetails"]["byproducts"]}
    assert by_action == keys
