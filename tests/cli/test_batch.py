"""A batch file as a person and a script have it: results in their place, whole or not at all, and an exit code."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.run.generation import run_package
from mlcbuild.cli.run.generation_options import parse_generation_options
from mlcbuild.errors import UsageError

pytestmark = pytest.mark.slow

REQUESTS = """\
{"custom_id": "a", "prompt": "hello w", "max_tokens": 5}

{"custom_id": "b", "messages": [{"role": "user", "content": "hello"}]}
"""


def ran(package: Path, *arguments: str) -> ExitCode:
    wanted = parse_generation_options("//:x", ["--threads", "1", *arguments])
    assert wanted is not None
    return run_package(package, wanted, GlobalOptions(environment={}, arguments=()))


def test_results_are_in_the_order_of_the_requests_and_logits_beside_them(
    tiny_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_text(REQUESTS)
    out, logits = tmp_path / "out.jsonl", tmp_path / "logits.npz"
    files = ["--batch", str(tmp_path / "in.jsonl"), "--output-file", str(out), "--logits", str(logits)]
    assert ran(tiny_package, *files, "--logits-of", "all", "--max-tokens", "3") is ExitCode.OK
    results = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(result["id"], result["custom_id"]) for result in results] == [("batch_req_1", "a"), ("batch_req_3", "b")]
    usage = [result["response"]["body"]["usage"] for result in results]
    assert usage[0]["prompt_tokens"] == 2
    assert usage[1]["completion_tokens"] <= 3
    with np.load(logits) as archive:
        assert sorted(archive) == ["logits.1", "logits.3", "tokens.1", "tokens.3"]
        assert archive["logits.1"].shape == (2, 300)
        assert archive["tokens.3"].tolist() == [0, 260]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1].startswith("2 requests · prompts 4 tokens · then ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "logits.npz", "out.jsonl"]


def test_standard_streams_and_a_line_with_an_error(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = b'{"prompt": "ab", "max_tokens": 0}\n{"custom_id": "bad"}\n'
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(lines)))
    assert ran(tiny_package, "--batch", "-") is ExitCode.RUN_FAILED
    printed = capsys.readouterr()
    good, bad = (json.loads(line) for line in printed.out.splitlines())
    assert good["response"]["body"]["choices"] == [{"index": 0, "text": "", "finish_reason": "length"}]
    assert (bad["custom_id"], bad["response"], bad["error"]["line"]) == ("bad", None, 2)
    assert printed.err.splitlines()[-1].startswith("2 requests, 1 with an error · prompts 2 tokens · then 0")


def test_a_batch_that_ends_early_leaves_no_results_that_look_whole(
    tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.jsonl").write_text(REQUESTS)
    out, logits = tmp_path / "out.jsonl", tmp_path / "logits.npz"
    out.write_text("of before\n")
    files = ["--batch", str(tmp_path / "in.jsonl"), "--output-file", str(out), "--logits", str(logits)]
    with pytest.raises(UsageError, match="--max-batch-size is 500, and the library's is 128"):
        ran(tiny_package, *files, "--max-batch-size", "500")

    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlcbuild.runtime.batch.result.result_line", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ran(tiny_package, *files)
    assert out.read_text() == "of before\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


@pytest.mark.parametrize(("name", "of", "shape"), [("a.npy", "last", (300,)), ("a.npz", "all", (2, 300))])
def test_logits_of_a_prompt(
    tiny_package: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    of: str,
    shape: tuple[int, ...],
) -> None:
    wanted = ["--prompt", "hello w", "--raw", "--max-tokens", "0", "--logits", str(tmp_path / name), "--logits-of", of]
    assert ran(tiny_package, *wanted) is ExitCode.OK
    assert capsys.readouterr().out == ""
    loaded = np.load(tmp_path / name)
    logits = loaded if name.endswith(".npy") else loaded["logits"]
    assert (logits.shape, logits.dtype) == (shape, np.float32)
    if name.endswith(".npz"):
        assert loaded["tokens"].tolist() == [260, 261]
