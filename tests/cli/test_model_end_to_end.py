"""From a BUILD.toml to generated text: a tiny model runs through every stage, by the commands that users type."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mlcbuild.cli.main import main
from tests.compiler.tiny_models import checkpoint, write_gguf
from tests.end_to_end.kernel_cache import KernelCache

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


def test_a_package_says_what_another_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", ":check", "--output=json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["tests"].values()
    figures = found["figures"]
    assert (found["status"], found["cached"], figures["steps"]) == ("PASSED", False, 6)
    assert 0 < figures["largest_error"] < 0.001 < figures["largest_reference"]
    assert main(["test", ":check", "--output=json"]) == 0
    (again,) = json.loads(capsys.readouterr().out)["tests"].values()
    assert (again["cached"], again["figures"]) == (True, figures)
