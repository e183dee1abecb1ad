"""Batches that tests run."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from mlcbuild.runtime.batch.request import RequestDefaults, parse_request
from mlcbuild.runtime.batch.run import BatchLimits, BatchRun
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.logits import Array
from mlcbuild.runtime.tokenizer import PackageTokenizer

DEFAULTS = RequestDefaults(max_tokens=6)


def requests() -> list[str]:
    """Prompts of unequal lengths, one longer than a chunk of 16, some sampled, some that end early."""
    random = np.random.default_rng(3)
    found = []
    for number, length in enumerate((3, 40, 1, 17, 16, 9, 33, 5)):
        tokens = [int(token) for token in random.integers(1, 300, length)]
        sampled = {"temperature": 1.5, "seed": 7} if number % 3 == 0 else {}
        found.append(json.dumps({"prompt": tokens, "max_tokens": 1 + 3 * (number % 4), **sampled}))
    return found


class Ran:
    """A batch that has run: its results, and the logits that it told."""

    def __init__(
        self, engine: Engine, lines: Sequence[str], *, size: int, tokens: int = 512, every_logit: bool = False
    ) -> None:
        self.logits: dict[int, Array] = {}
        self.prompts: dict[int, list[int]] = {}
        self.run = BatchRun(
            engine,
            PackageTokenizer(engine.package),
            limits=BatchLimits(max_batch_size=size, max_total_tokens=tokens),
            keep_logits=self._keep,
            every_logit=every_logit,
        )
        parsed = [parse_request(line.encode(), number, DEFAULTS) for number, line in enumerate(lines, 1)]
        self.results = list(self.run.results(parsed))

    def _keep(self, number: int, tokens: Sequence[int], logits: Array) -> None:
        self.logits[number] = np.array(logits)
        self.prompts[number] = list(tokens)
