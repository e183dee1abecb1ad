"""Prompts in a batch against each of them alone: `python -m benchmarks.batch_speed PACKAGE [--prompts 256]`.

Prompts of random tokens and unequal lengths are computed by continuous batching, as `mlcbuild run PACKAGE -- --batch`
does, and each also alone, by the functions for one sequence, as `--prompt` does; both choose the likeliest tokens. They
take turns in one process with the same weights: when a result of the batch comes, its prompt is computed alone.
So both meet the same noise of the machine.

It prints JSON: the largest difference of the prompts' logits with the bound for it, how many answers differ, and of
both ways tokens (prompts and new tokens together) per second, and per second of a processor, which other processes
disturb less; the ratios, also of each quarter of the results.

The bound for logits up to L in float32 (u = 2^-24). Each tensor that one kernel hands to the next is rounded; there are
nine in a layer (norm, query-key-value, rotation, attention, residual; norm, gate and up, activation, residual) and two
before the logits. Roundings in a sum of k products add like a random walk, to sqrt(k) u of its value, and each of the
9 layers + 2 sums moves the logits by at most that part of L. Both sides round, in different orders, so twice that:
2 (9 layers + 2) sqrt(k) u L, where k is the longest sum: over hidden or intermediate size, or over the text.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.runtime.batch.request import BatchRequest, RequestKind
from mlcbuild.runtime.batch.result import BatchResult
from mlcbuild.runtime.batch.run import BatchLimits, BatchRun
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.logits import Array
from mlcbuild.runtime.sampling import Sampling
from mlcbuild.runtime.tokenizer import PackageTokenizer

_ROUNDINGS_A_LAYER = 9
_PARTS = 4


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Tokens that were computed, per second and per second of a processor."""

    per_second: float
    per_processor_second: float


@dataclass(frozen=True, kw_only=True)
class _Spent:
    """Tokens so far, and what they took."""

    tokens: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0

    def and_(self, tokens: int, begin: tuple[float, float]) -> _Spent:
        """With what was spent since `begin`."""
        seconds, processor = _clocks()
        return _Spent(
            tokens=self.tokens + tokens,
            seconds=self.seconds + seconds - begin[0],
            processor_seconds=self.processor_seconds + processor - begin[1],
        )

    def since(self, before: _Spent) -> Rate:
        tokens = self.tokens - before.tokens
        return Rate(
            per_second=tokens / (self.seconds - before.seconds),
            per_processor_second=tokens / (self.processor_seconds - before.processor_seconds),
        )


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was found. Logits are compared after the prompts' last tokens."""

    prompts: int
    prompt_tokens: int
    new_tokens: int
    shortest: int
    longest: int
    batch_size: int
    threads: int
    largest_logit: float
    bound: float
    largest_difference: float
    answers_that_differ: int
    alone: Rate
    batch: Rate
    ratio: float
    ratios_of_quarters: tuple[float, ...]
    processor_ratio: float
    processor_ratios_of_quarters: tuple[float, ...]


def rounding_bound(model_config: dict[str, Any], *, longest_text: int, largest: float) -> float:
    """The largest difference that roundings in float32 explain, of logits up to `largest`: see above."""
    sums = _ROUNDINGS_A_LAYER * model_config["num_hidden_layers"] + 2
    longest = max(model_config["hidden_size"], model_config["intermediate_size"], longest_text)
    return float(2 * sums * math.sqrt(longest) * 2.0**-24 * largest)


def measure(
    package: Path,
    *,
    prompts: int,
    shortest: int = 8,
    longest: int = 40,
    new_tokens: int = 24,
    batch_size: int = 32,
    total_tokens: int | None = None,
    threads: int = 0,
) -> Measured:
    """Compare both ways on a built package."""
    engine = Engine(package, threads=threads)
    random = np.random.default_rng(17)
    lengths = random.integers(shortest, longest + 1, prompts)
    texts = [[int(token) for token in random.integers(0, engine.active_vocab_size, length)] for length in lengths]
    engine.reset(capacity=longest + new_tokens)
    together: dict[int, Array] = {}
    limits = BatchLimits.of(engine, max_batch_size=batch_size, max_total_tokens=total_tokens)
    run = BatchRun(
        engine,
        PackageTokenizer(engine.package),
        limits=limits,
        keep_logits=lambda number, _, row: together.update({number: np.array(row)}),
    )
    largest, difference, differing, new = 0.0, 0.0, 0, 0
    alone, batch = _Spent(), _Spent()
    marks = [(alone, batch)]
    results = run.results(_request(place, text, new_tokens) for place, text in enumerate(texts))
    for number, text in enumerate(texts):
        begin = _clocks()
        result = next(results)
        assert isinstance(result, BatchResult), result
        batch = batch.and_(len(text) + len(result.tokens), begin)
        begin = _clocks()
        logits, chosen = _alone(engine, text, new_tokens)
        alone = alone.and_(len(text) + len(chosen), begin)
        new += len(chosen)
        largest = max(largest, float(np.abs(logits).max()))
        difference = max(difference, float(np.abs(logits - together[number]).max()))
        differing += result.tokens != tuple(chosen)
        if (number + 1) * _PARTS // prompts >= len(marks):
            marks.append((alone, batch))
            print(f"{number + 1} of {prompts} prompts", file=sys.stderr, flush=True)
    quarters = [
        (later[0].since(earlier[0]), later[1].since(earlier[1])) for earlier, later in itertools.pairwise(marks)
    ]
    rates = alone.since(_Spent()), batch.since(_Spent())
    return Measured(
        prompts=prompts,
        prompt_tokens=int(lengths.sum()),
        new_tokens=new,
        shortest=int(lengths.min()),
        longest=int(lengths.max()),
        batch_size=limits.max_batch_size,
        threads=threads or len(os.sched_getaffinity(0)),
        largest_logit=largest,
        bound=rounding_bound(
            engine.package.chat_config["model_config"], longest_text=longest + new_tokens, largest=largest
        ),
        largest_difference=difference,
        answers_that_differ=differing,
        alone=rates[0],
        batch=rates[1],
        ratio=round(rates[1].per_second / rates[0].per_second, 2),
        ratios_of_quarters=tuple(round(two.per_second / one.per_second, 2) for one, two in quarters),
        processor_ratio=round(rates[1].per_processor_second / rates[0].per_processor_second, 2),
        processor_ratios_of_quarters=tuple(
            round(two.per_processor_second / one.per_processor_second, 2) for one, two in quarters
        ),
    )


def _request(place: int, tokens: Sequence[int], new_tokens: int) -> BatchRequest:
    return BatchRequest(
        number=place,
        custom_id=None,
        model="",
        kind=RequestKind.COMPLETION,
        prompt=tuple(tokens),
        max_tokens=new_tokens,
        sampling=Sampling(),
        stop=(),
    )


def _alone(engine: Engine, tokens: Sequence[int], new_tokens: int) -> tuple[Array, list[int]]:
    """Logits after a prompt, and the likeliest tokens after it up to one that ends the text."""
    first = row = engine.prefill(tokens[engine.keep(tokens) :])
    chosen: list[int] = []
    while True:
        token = int(np.argmax(row[: engine.active_vocab_size]))
        if token in engine.package.stop_token_ids:
            return first, chosen
        chosen.append(token)
        if len(chosen) == new_tokens:
            return first, chosen
        row = engine.decode(token)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="directory of a built model_package")
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--shortest", type=int, default=8, help="tokens")
    parser.add_argument("--longest", type=int, default=40, help="tokens")
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--total-tokens", type=int)
    parser.add_argument("--threads", type=int, default=0)
    print(json.dumps(asdict(measure(**vars(parser.parse_args()))), indent=2))


if __name__ == "__main__":
    main()
