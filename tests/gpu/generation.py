"""Packages generate on a GPU what transformers generates: in a batch of prompts of unequal lengths, and in turns of a
chat. In two steps, the second where a GPU is:

    python -m tests.gpu.generation prepare FOLDER [--quantization NAME] [--arch ARCH] [FAMILY…]
    python -m tests.gpu.generation check FOLDER [FAMILY…]

`prepare` builds a package of a small model of each family with random weights, and writes down what transformers says
in float32 (with the numbers that the stored weights stand for). `check` needs neither transformers nor torch. It takes
the prompts by the code of `mlcbuild run PACKAGE -- --batch`: some are longer than a chunk, and there are more of them
than sequences at a time. And it takes the conversation by that of `--chat`, where a turn keeps what it can of the turns
before it. Logits after each prompt have the bound of `tests.gpu.families`. New tokens have to be the same as long as
the likeliest two are not so near to each other that the bound leaves open which is chosen; all of the conversation's
are sure.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from mlcbuild.runtime.answer import Answer
from mlcbuild.runtime.batch.result import BatchResult
from mlcbuild.runtime.chat import Chat
from mlcbuild.runtime.chat_message import ASSISTANT, USER, ChatMessage
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.package import ModelPackage
from mlcbuild.runtime.tokenizer import PackageTokenizer
from tests.compiler.running import Array
from tests.gpu.families import EVERY_EXPERT, allowed_difference
from tests.gpu.models import MODELS
from tests.gpu.steps import run_steps
from tests.runtime.batch.running import Ran

FAMILIES = ("llama", "gemma2", "mixtral", "deepseek_v3", "mamba2", "qwen3_5_text")
SIZES = {"context_window_size": 256, "prefill_chunk_size": 16, "max_batch_size": 4}
_AT_A_TIME = 3
_PROMPTS = (3, 40, 1, 17, 16, 29, 5)
_NEW_TOKENS = 8
_TURNS, _ANSWER = 3, 5
_TEMPLATE = "{% for message in messages %}{{ message['role'][0] }}:{{ message['content'] }};{% endfor %}a:"
_TRIES = 300


@dataclass(frozen=True, kw_only=True)
class _Expected:
    """Logits (vocabulary,) after a prompt, and the likeliest tokens behind it, up to the first that is not sure."""

    prompt: list[int]
    logits: Array
    tokens: list[int]


def prepare(
    name: str,
    folder: Path,
    *,
    quantization: str,
    target: Mapping[str, object],
    kernel_store: Path | None = None,
    architectures: Sequence[str] | None = None,
) -> None:
    """`architectures` are those of `compile_library`."""
    from tests.compiler import schemes
    from tests.compiler.packaged import byte_level_tokenizer, write_tokenizer
    from tests.compiler.parity import reference
    from tests.compiler.running import random_model, store, tensors_of
    from tests.runtime.tiny_package import build_package

    scheme = schemes.scheme(quantization)
    config = {"model_type": name, **MODELS[name]} | (EVERY_EXPERT.get(name, {}) if quantization != "q0f32" else {})
    model = random_model(config)
    source = folder / "work" / name
    write_tokenizer(source, byte_level_tokenizer(config["vocab_size"]), chat_template=_TEMPLATE)
    (source / "config.json").write_text(json.dumps(config))
    save_file({key: np.array(tensor) for key, tensor in tensors_of(model).items()}, source / "model.safetensors")
    if quantization != "q0f32":
        store(model, scheme)
    built = build_package(
        source,
        folder / name,
        quantization=quantization,
        overrides=SIZES,
        kernel_store=kernel_store,
        target=target,
        architectures=architectures,
    )
    random = np.random.default_rng(7)
    prompts = [random.integers(0, config["vocab_size"], length).tolist() for length in _PROMPTS]
    largest = max(float(np.abs(reference(model, prompt)).max()) for prompt in prompts)
    allowed = allowed_difference(config, scheme, largest)
    batch = [_expected(model, prompt, count=_NEW_TOKENS, allowed=allowed) for prompt in prompts]
    messages, turns = _conversation(model, ModelPackage.open(built), allowed=allowed)
    told = {
        "allowed": allowed,
        "largest": largest,
        "messages": messages,
        "batch": [{"prompt": each.prompt, "tokens": each.tokens} for each in batch],
        "turns": [{"prompt": each.prompt, "tokens": each.tokens} for each in turns],
    }
    np.savez(
        folder / f"{name}-logits.npz",
        batch=np.stack([each.logits for each in batch]),
        turns=np.stack([each.logits for each in turns]),
    )
    (folder / f"{name}.json").write_text(json.dumps(told))


def _expected(model: Any, prompt: Sequence[int], *, count: int, allowed: float) -> _Expected:
    from tests.compiler.parity import reference

    first = row = reference(model, list(prompt))[-1]
    tokens: list[int] = []
    while len(tokens) < count:
        second, best = np.sort(row)[-2:]
        if best - second <= 2 * allowed:
            break
        tokens.append(int(np.argmax(row)))
        row = reference(model, [*prompt, *tokens])[-1]
    return _Expected(prompt=list(prompt), logits=first, tokens=tokens)


def _conversation(model: Any, package: ModelPackage, *, allowed: float) -> tuple[list[str], list[_Expected]]:
    """What is asked, and each turn, of which all tokens are sure: other words are tried until they are."""
    tokenizer = PackageTokenizer(package)
    random = np.random.default_rng(1)
    messages: list[ChatMessage] = []
    turns: list[_Expected] = []
    for _ in range(_TRIES):
        asked = ChatMessage(role=USER, content="".join(random.choice(list("abcdefgh"), random.integers(4, 24))))
        turn = _expected(model, tokenizer.encode_chat([*messages, asked]), count=_ANSWER, allowed=allowed)
        if len(turn.tokens) < _ANSWER:
            continue
        turns.append(turn)
        answer = Answer(tokenizer, stop_tokens=package.stop_token_ids, max_tokens=_ANSWER)
        for token in turn.tokens:
            answer.add(token)
        messages += [asked, ChatMessage(role=ASSISTANT, content=answer.text)]
        if len(turns) == _TURNS:
            return [each.content for each in messages if each.role == USER], turns
    raise SystemExit(f"{package.directory}: in {_TRIES} tries there is no conversation whose tokens are all sure")


def check(name: str, folder: Path) -> dict[str, float]:
    """The largest errors of logits after prompts, relative to the largest logit, their bound, and how many tokens are
    other ones, none of which may be."""
    told = json.loads((folder / f"{name}.json").read_text())
    engine = Engine(folder / name / "package")
    with np.load(folder / f"{name}-logits.npz") as saved:
        batch_logits, turn_logits = saved["batch"], saved["turns"]
    lines = [json.dumps({"prompt": each["prompt"], "max_tokens": _NEW_TOKENS}) for each in told["batch"]]
    ran = Ran(engine, lines, size=_AT_A_TIME)
    found = np.stack([ran.logits[number] for number in range(1, len(lines) + 1)])
    errors = {"bound": told["allowed"] / told["largest"], "batch": _error(found, batch_logits, told)}
    other = 0
    for result, each in zip(ran.results, told["batch"], strict=True):
        assert isinstance(result, BatchResult), result
        other += _others(result.tokens, each["tokens"])
    chat = Chat(engine, PackageTokenizer(engine.package), max_tokens=_ANSWER)
    rows = []
    for asked, each in zip(told["messages"], told["turns"], strict=True):
        turn = chat.ask(asked)
        list(turn)
        assert turn.generation.prompt == each["prompt"], f"a turn of {name} has another prompt: an answer differs"
        logits = turn.generation.prompt_logits
        assert logits is not None
        rows.append(logits)
        other += _others(turn.generation.tokens, each["tokens"])
    errors["chat"] = _error(np.stack(rows), turn_logits, told)
    return {**errors, "other_tokens": float(other)}


def _error(found: Array, expected: Array, told: Mapping[str, Any]) -> float:
    error = float(np.abs(found - expected).max()) / float(told["largest"])
    return error if np.isfinite(error) else np.inf


def _others(found: Sequence[int], expected: Sequence[int]) -> int:
    return sum(one != other for one, other in zip(found, expected, strict=False))


def _prepare(name: str, folder: Path, asked: argparse.Namespace) -> None:
    from tests.compiler.pipeline import CUDA_TARGET

    target = {**CUDA_TARGET, "arch": asked.arch}
    prepare(name, folder, quantization=asked.quantization, target=target, kernel_store=folder / "kernels")


if __name__ == "__main__":
    run_steps(__doc__, FAMILIES, prepare=_prepare, check=check)
