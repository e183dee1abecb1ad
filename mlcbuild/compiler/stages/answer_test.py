"""AnswerTest: whether a package answers a prompt as expected. The likeliest token is chosen each time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.stages.tested_package import failing_as_stage, load, threads_of
from mlcbuild.errors import StageError
from mlcbuild.runtime.answer import Answer
from mlcbuild.runtime.chat_message import one_turn
from mlcbuild.runtime.generate import room_for_answer
from mlcbuild.runtime.test_result import TestResult
from mlcbuild.runtime.tokenizer import PackageTokenizer

_DATE = datetime(2024, 7, 26)  # for templates that name one: an answer must not change overnight
_SHOWN = 200  # characters of an answer in a summary


def run(
    *,
    package: Path,
    result: Path,
    prompt: str,
    system: str,
    raw: bool,
    expected: str,
    match: str,
    max_tokens: int,
    hints: Mapping[str, Any] | None = None,
) -> None:
    """`match` is how the answer is compared with `expected`: exact, prefix, contains or regex. Raises StageError for
    another answer, and for a package or a prompt that does not run."""
    model = load(package, threads=threads_of(hints), function="decode")
    with failing_as_stage():
        tokenizer = PackageTokenizer(model.package)
        ids = (
            tokenizer.encode_raw(prompt)
            if raw
            else tokenizer.encode_chat(one_turn(prompt, system=system), clock=lambda: _DATE)
        )
        if model.cache_sizes.is_bounded:
            max_tokens = min(max_tokens, room_for_answer(len(ids), model.context_window_size))
        model.reset(capacity=len(ids) + max_tokens)
        answer = Answer(
            tokenizer,
            stop_tokens=model.package.stop_token_ids,
            stop_strings=model.package.stop_strings,
            max_tokens=max_tokens,
        )
        logits = model.prefill(ids)
        while True:
            if not np.isfinite(logits).all():
                raise StageError(f"some logits after token {len(ids) + len(answer.tokens)} are not finite numbers")
            token = int(np.argmax(logits[: model.active_vocab_size]))
            answer.add(token)
            if answer.finish_reason is not None:
                break
            logits = model.decode(token)
    passed = _matches(answer.text, expected, match)
    words = {"exact": "", "prefix": "text that begins with ", "contains": "text with ", "regex": "a match of "}[match]
    summary = f"answered {_short(answer.text)}" + ("" if passed else f", expected {words}{_short(expected)}")
    TestResult(
        test="answer_test",
        passed=passed,
        summary=summary,
        figures={
            "answer": answer.text,
            "expected": expected,
            "match": match,
            "prompt_tokens": len(ids),
            "answer_tokens": len(answer.tokens),
            "finish_reason": str(answer.finish_reason),
        },
    ).report(result)


def _matches(answer: str, expected: str, match: str) -> bool:
    if match == "regex":
        return re.search(expected, answer) is not None
    if match == "contains":
        return expected in answer
    return answer.startswith(expected) if match == "prefix" else answer == expected


def _short(text: str) -> str:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return '"' + shown.replace("\n", "\\n") + '"'
