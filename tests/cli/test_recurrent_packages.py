"""Chats and batches of packages whose models keep recurrent states, alone or beside keys and values: every answer is
transformers' own."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.run.generation import run_package
from mlcbuild.cli.run.generation_options import parse_generation_options
from tests.compiler.family_cases import CASES
from tests.compiler.running import random_model, tensors_of
from tests.runtime.tiny_package import build_package

pytestmark = pytest.mark.slow

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MARK, END = "<mark>", "<end>"  # before each message, and behind an answer
MOST = 6
OPTIONS = ("--max-tokens", str(MOST), "--temperature", "0", "--threads", "1")


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package, transformers' model of the same weights, and its tokenizer."""

    path: Path
    model: Any
    tokenizer: Any

    def answer(self, prompt: str) -> str:
        """What the model says after a prompt, the likeliest token each time. What the template puts behind an answer
        ends it, too."""
        import torch

        tokens = self.tokenizer.encode(prompt).ids
        begin, ends = len(tokens), {self.tokenizer.token_to_id(word) for word in (END, MARK)}
        with torch.no_grad():
            while len(tokens) < begin + MOST:
                (following,) = self.model(torch.tensor([tokens])).logits[:, -1].argmax(dim=-1).tolist()
                if following in ends:
                    break
                tokens.append(following)
        text: str = self.tokenizer.decode(tokens[begin:])
        return text

    def run(self, *arguments: str) -> ExitCode:
        wanted = parse_generation_options("//:x", [*OPTIONS, *arguments])
        assert wanted is not None
        return run_package(self.path, wanted, GlobalOptions(environment={}, arguments=()))


@pytest.fixture(scope="module", params=["mamba2", pytest.param("qwen3_5", marks=pytest.mark.exhaustive)])
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kernel_store: Path) -> Package:
    from safetensors.numpy import save_file

    config = dict(CASES[request.param].config)
    directory = tmp_path_factory.mktemp(request.param)
    source = directory / "source"
    source.mkdir()
    model, tokenizer = random_model(config), _tokenizer(config["vocab_size"])
    save_file(tensors_of(model), source / "model.safetensors")
    (source / "config.json").write_text(json.dumps(config))
    tokenizer.save(str(source / "tokenizer.json"))
    template = f"{{% for message in messages %}}{MARK}{{{{ message['content'] }}}}{{% endfor %}}{MARK}"
    (source / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": END}))
    overrides = {"prefill_chunk_size": 8, "max_batch_size": 4}
    built = build_package(source, directory, overrides=overrides, kernel_store=kernel_store)
    return Package(path=built, model=model, tokenizer=tokenizer)


def _tokenizer(size: int) -> Any:
    """Letters and pairs of letters, so that whatever a model says is text; the end of a text is token 2."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    pairs = [(first, second) for first in LETTERS for second in LETTERS][: size - 3 - len(LETTERS)]
    words = [MARK, "<start>", END, *LETTERS, *("".join(pair) for pair in pairs)]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.add_special_tokens(words[:3])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def test_each_turn_of_a_chat_answers_the_whole_conversation(
    package: Package, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    messages = ["hello", "a", "whatcomesafterthat", "b"]
    lines = "".join(f"{message}\n" for message in messages[:3]) + f"/undo\n{messages[3]}\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(lines.encode()), isatty=lambda: False))
    assert package.run("--chat") is ExitCode.OK
    conversation, expected = "", []
    for number, message in enumerate(messages):
        before = conversation
        conversation += f"{MARK}{message}{MARK}"
        expected.append(package.answer(conversation))
        conversation += expected[-1]
        if number == 2:
            conversation = before  # taken back
    assert capfd.readouterr().out.splitlines() == expected
    assert any(expected)


def test_a_batch_answers_each_prompt_as_if_it_were_alone(package: Package, tmp_path: Path) -> None:
    prompts = ["hello", "a", "alongerpromptthanachunkofthelibraryholdsforonepass", "xyz", "zz", "more"]
    requests: list[dict[str, object]] = [{"prompt": prompt} for prompt in prompts[:4]]
    requests += [{"messages": [{"role": "user", "content": prompt}]} for prompt in prompts[4:]]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(request) + "\n" for request in requests))
    out = tmp_path / "out.jsonl"
    assert package.run("--batch", str(tmp_path / "in.jsonl"), "--output-file", str(out)) is ExitCode.OK
    (*continued, first, second) = (
        json.loads(line)["response"]["body"]["choices"][0] for line in out.read_text().splitlines()
    )
    assert [choice["text"] for choice in continued] == [package.answer(prompt) for prompt in prompts[:4]]
    answers = [choice["message"]["content"] for choice in (first, second)]
    assert answers == [package.answer(f"{MARK}{prompt}{MARK}") for prompt in prompts[4:]]
    assert any(answers)
