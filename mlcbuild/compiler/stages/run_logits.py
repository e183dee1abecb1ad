"""RunLogits: what a package says, as numbers, on the device that it was built for.

`choose` generates greedily from prompts and writes which tokens it saw and chose; `follow` feeds those tokens to
another package. Both write `logits`, a .npy file of float32 (steps, vocabulary): for each prompt one row after its last
token, and one after each chosen token but the last. `tokens` is JSON, `{"prompts": [[int, …], …], "chosen": …}` alike.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcbuild.errors import MlcbuildError, StageError, UsageError
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.tokenizer import PackageTokenizer

Logits = npt.NDArray[Any]


def choose(*, package: Path, tokens: Path, logits: Path, prompts: Sequence[str], max_tokens: int) -> None:
    """Raises StageError for a package that does not run, or a prompt that does not fit its context."""
    engine = _engine(package)
    tokenizer = PackageTokenizer(engine.package)
    prompt_ids = [tokenizer.encode_raw(prompt) for prompt in prompts]
    chosen: list[list[int]] = []
    rows: list[Logits] = []
    for prompt in prompt_ids:
        found = _greedy(engine, prompt, max_tokens)
        rows += found
        chosen.append([int(np.argmax(row)) for row in found])
    tokens.write_text(json.dumps({"prompts": prompt_ids, "chosen": chosen}) + "\n")
    np.save(logits, np.stack(rows))


def follow(*, package: Path, tokens: Path, logits: Path) -> None:
    """Raises StageError as `choose` does."""
    engine = _engine(package)
    document = json.loads(tokens.read_text())
    rows: list[Logits] = []
    for prompt, chosen in zip(document["prompts"], document["chosen"], strict=True):
        _reset(engine, prompt, len(chosen))
        rows.append(engine.prefill(prompt))
        rows += [engine.decode(token) for token in chosen[:-1]]
    np.save(logits, np.stack(rows))


def _engine(package: Path) -> Engine:
    try:
        return Engine(package, threads=1)
    except UsageError as error:
        raise StageError(f"the package does not run: {error}") from error


def _greedy(engine: Engine, prompt: list[int], count: int) -> list[Logits]:
    _reset(engine, prompt, count)
    rows = [engine.prefill(prompt)]
    while len(rows) < count:
        rows.append(engine.decode(int(np.argmax(rows[-1]))))
    return rows


def _reset(engine: Engine, prompt: Sequence[int], count: int) -> None:
    if not prompt:
        raise StageError("a prompt has no tokens")
    try:
        engine.reset(capacity=len(prompt) + count)
    except MlcbuildError as error:
        raise StageError(str(error)) from error
