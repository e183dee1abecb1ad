"""A batch says of each request what is said to it alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mlcbuild.errors import UsageError
from mlcbuild.runtime.answer import FinishReason
from mlcbuild.runtime.batch.envelope import RejectedRequest
from mlcbuild.runtime.batch.request import parse_request
from mlcbuild.runtime.batch.result import BatchResult, result_line
from mlcbuild.runtime.batch.run import BatchLimits, BatchRun
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.generate import generate
from mlcbuild.runtime.tokenizer import PackageTokenizer
from tests.runtime.batch.running import DEFAULTS, Ran, requests

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine(tiny_package: Path) -> Engine:
    return Engine(tiny_package, threads=2)


def test_results_are_equal_whatever_the_size_of_the_batch(engine: Engine) -> None:
    lines = requests()
    alone = Ran(engine, lines, size=1)
    written = [result_line(result) for result in alone.results]
    for size, tokens in ((3, 512), (8, 512), (8, 96)):
        together = Ran(engine, lines, size=size, tokens=tokens)
        assert [result_line(result) for result in together.results] == written
        assert together.run.totals.requests == len(lines)
        for number, row in alone.logits.items():
            np.testing.assert_array_equal(together.logits[number], row, err_msg=str(number))


@pytest.mark.parametrize("every_logit", [False, True])
def test_logits_are_those_of_the_prompt_alone(engine: Engine, every_logit: bool) -> None:
    ran = Ran(engine, requests(), size=8, every_logit=every_logit)
    assert list(ran.logits) == sorted(ran.logits)
    for number, prompt in ran.prompts.items():
        engine.reset(capacity=64)
        pieces = list(engine.prefill_in_pieces(prompt, every_token=every_logit))
        expected = np.concatenate(pieces) if every_logit else pieces[-1]
        # Sums of up to 96 products in another order, through two layers.
        np.testing.assert_allclose(
            ran.logits[number], expected, rtol=0, atol=1e-4 * np.abs(expected).max(), err_msg=str(number)
        )


def test_an_answer_is_what_the_prompt_alone_is_answered(engine: Engine, tiny_package: Path) -> None:
    lines = ['{"prompt": "hello w", "max_tokens": 12}', '{"messages": [{"role": "user", "content": "hello"}]}']
    continued, answered = Ran(engine, lines, size=2).results
    whole = generate(tiny_package, "hello w", raw=True, max_tokens=12, threads=2)
    text = "".join(whole)
    assert isinstance(continued, BatchResult)
    assert (continued.text, list(continued.tokens)) == (text, whole.tokens)
    assert continued.finish_reason is whole.answer.finish_reason
    assert isinstance(answered, BatchResult)
    assert answered.text == "".join(generate(tiny_package, "hello", max_tokens=6, threads=2))


def test_a_stop_string_ends_its_own_answer_alone(engine: Engine) -> None:
    line = {"prompt": "hello w", "max_tokens": 20}
    whole = Ran(engine, [json.dumps(line)], size=1).results[0]
    assert isinstance(whole, BatchResult)
    stop = whole.text[4:7]
    lines = [json.dumps(line), json.dumps({**line, "stop": stop}), json.dumps(line)]
    first, stopped, last = Ran(engine, lines, size=3).results
    assert isinstance(first, BatchResult)
    assert isinstance(last, BatchResult)
    assert first.text == last.text == whole.text
    assert isinstance(stopped, BatchResult)
    assert stopped.text == whole.text[: whole.text.index(stop)]
    assert stopped.finish_reason is FinishReason.STOP


def test_what_cannot_be_answered_says_so_and_the_others_are_answered(engine: Engine) -> None:
    lines = [
        '{"prompt": "ab"}',
        "not JSON",
        json.dumps({"prompt": "x" * 64}),
        json.dumps({"prompt": "y" * 40, "max_tokens": 20}),
        '{"prompt": [300]}',
        '{"prompt": ""}',
        '{"prompt": "cd", "max_tokens": 0}',
    ]
    ran = Ran(engine, lines, size=4, tokens=48)
    errors = {result.number: result.message for result in ran.results if isinstance(result, RejectedRequest)}
    assert list(errors) == [2, 3, 4, 5, 6]
    assert errors[3].startswith("the prompt has 64 tokens, and the model's context is 64")
    assert errors[4].startswith("the prompt of 40 tokens and an answer of up to 20 do not fit the KV cache")
    assert errors[5] == "the prompt has token 300; tokens are 0 to 299"
    assert errors[6].startswith("the prompt is empty")
    nothing = ran.results[6]
    assert isinstance(nothing, BatchResult)
    assert (nothing.text, nothing.tokens, nothing.finish_reason) == ("", (), FinishReason.LENGTH)
    assert list(ran.logits) == [1, 7]
    assert (ran.run.totals.requests, ran.run.totals.rejected) == (7, 5)


def test_a_request_is_read_when_there_is_room_for_it(engine: Engine) -> None:
    asked = []

    def lines() -> object:
        for number in range(1, 9):
            asked.append(number)
            yield parse_request(b'{"prompt": "ab", "max_tokens": 3}', number, DEFAULTS)

    limits = BatchLimits(max_batch_size=2, max_total_tokens=64)
    results = BatchRun(engine, PackageTokenizer(engine.package), limits=limits).results(lines())  # type: ignore[arg-type]
    next(results)
    assert len(asked) < 8
    assert len(list(results)) == 7


def test_a_batch_is_no_larger_than_the_library_allows(engine: Engine) -> None:
    with pytest.raises(UsageError, match="--max-batch-size is 129, and the library's is 128"):
        BatchLimits.of(engine, max_batch_size=129, max_total_tokens=None)
    assert BatchLimits.of(engine, max_batch_size=None, max_total_tokens=None).max_batch_size == 128
