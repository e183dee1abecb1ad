"""Text as it is written while it is generated."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlcbuild.cli.run.generation import statistics_line, stream
from mlcbuild.cli.run.generation_options import GenerationOptions, parse_generation_options
from mlcbuild.errors import UsageError
from mlcbuild.runtime.generate import GenerationStatistics


class Watched(io.StringIO):
    """Remembers what could be seen at each flush."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def flush(self) -> None:
        self.seen.append(self.getvalue())


def test_each_piece_is_seen_as_it_comes() -> None:
    output = Watched()
    stream(["The", " capital", "."], output)
    assert output.seen == ["The", "The capital", "The capital.", "The capital.\n"]


def test_the_last_line_is_ended_once() -> None:
    output = Watched()
    stream(["a\n", ""], output)
    assert output.getvalue() == "a\n"


def test_an_interrupted_text_ends_its_line() -> None:
    def pieces() -> Iterator[str]:
        yield "half"
        raise KeyboardInterrupt

    output = Watched()
    with pytest.raises(KeyboardInterrupt):
        stream(pieces(), output)
    assert output.getvalue() == "half\n"


def test_statistics() -> None:
    measured = GenerationStatistics(prompt_tokens=32, prefill_seconds=0.1, decoded_tokens=127, decode_seconds=2.0)
    assert statistics_line(measured) == "prompt 32 tokens · 320.0 tokens/s · then 127 tokens · 63.5 tokens/s"


def test_arguments_and_their_defaults() -> None:
    assert parse_generation_options("//m:x", ["--prompt", "hello"]) == GenerationOptions(prompt="hello")
    numbers = ["--max-tokens", "5", "--temperature", "0.7", "--top-p", "0.9", "--seed", "3", "--threads", "2"]
    arguments = ["--raw", *numbers, "--stats", "--prompt"]
    assert parse_generation_options("//m:x", [*arguments, "--raw"]) == GenerationOptions(
        prompt="--raw",
        raw=True,
        max_tokens=5,
        temperature=0.7,
        top_p=0.9,
        seed=3,
        threads=2,
        stats=True,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "",
            "nothing says what to generate: give --prompt, --chat, --embed or --batch\n"
            "  see mlcbuild run //m:x -- --help",
        ),
        ("--prompt x --chat", "--prompt and --chat exclude each other"),
        ("--chat --raw", "--raw is for --prompt, not for --chat"),
        ("--batch - --system x", "--system is for --prompt and --chat, not for --batch"),
        ("--prompt x --raw --system y", "--raw takes no --system: it continues the text as it stands"),
        ("--prompt x --logits-of all", "--logits-of says which logits --logits writes, and there is no --logits"),
        ("--prompt x --logits a.txt", "the file of logits ends in .txt, and it is .npy or .npz"),
        ("--batch - --logits a.npy", "the file of logits ends in .npy, which holds one prompt; of a batch it is .npz"),
        ("--prompt x --logits no/a.npy", "--logits: there is no directory no"),
        ("--batch no.jsonl", "--batch: there is no file no.jsonl"),
        ("--batch - --output-file no/a", "--output-file: there is no directory no"),
        ("--chat --stop=", "--stop has an empty text"),
        ("--promt x", "no such option: --promt\n  did you mean --prompt?\n  see mlcbuild run //m:x -- --help"),
        ("--prompt x --top-p 2", 'invalid value for "--top-p": 2 is out of range: at least 0 and at most 1'),
        ("--prompt x --max-tokens -1", 'invalid value for "--max-tokens": -1 is out of range: at least 0'),
        ("--prompt x --max-tokens 0", "--max-tokens 0 generates nothing; it is for --logits and --batch"),
        ("--prompt x --temperature nan", 'invalid value for "--temperature": nan is out of range: at least 0'),
        ("--prompt x y", "got unexpected extra argument(s) (y)"),
    ],
)
def test_errors_in_arguments(arguments: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_generation_options("//m:x", arguments.split())
    assert str(caught.value).startswith(message)


def test_arguments_are_checked_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlcbuild.cli.main import main

    (tmp_path / "BUILD.toml").write_text(
        """\
[workspace]
name = "w"
[[local_file]]
name = "weights"
path = "/nowhere/model.gguf"
[[model]]
name = "m"
source = ":weights"
[[platform]]
name = "v3"
kind = "cpu"
cpu = "x86-64-v3"
[[model_package]]
name = "package"
model = ":m"
quantization = "q4f32_1"
platform = ":v3"
"""
    )
    monkeypatch.chdir(tmp_path)
    assert main(["run", ":package", "--", "--promt", "x"]) == 2
    assert "did you mean --prompt?" in capsys.readouterr().err
    assert main(["run", ":package", "--", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: mlcbuild run //:package -- [OPTIONS]")
    assert not (tmp_path / "mlcbuild-out").exists()
    assert main(["log", "--output", "json"]) == 0
    recorded = json.loads(capsys.readouterr().out)
    assert [each["exit_code"] for each in recorded] == [2], "help is no build"
    assert main(["run", ":package", "--", "--prompt", "x"]) == 1, "the files have no pin"


def test_a_prompt_that_is_not_utf_8_is_an_error_before_anything_is_built() -> None:
    prompt = b"caf\xe9".decode(errors="surrogateescape")
    with pytest.raises(UsageError, match="the prompt is not UTF-8: it has byte 0xe9 after 3 characters"):
        parse_generation_options("//m:x", ["--prompt", prompt])
