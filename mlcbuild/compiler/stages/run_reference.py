"""RunReference: what a package says, as numbers, for a `logits_test` of another.

It generates greedily from prompts. Writes `tokens`, JSON `{"prompts": [[int, …], …], "chosen": …}` alike, and
`logits`, a .npy file of float32 (steps, vocabulary): for each prompt one row after its last token, and one after each
chosen token but the last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.stages.tested_package import failing_as_stage, load, threads_of
from mlcbuild.errors import StageError
from mlcbuild.runtime.logits import Array
from mlcbuild.runtime.model import Model
from mlcbuild.runtime.tokenizer import PackageTokenizer


def run(
    *,
    package: Path,
    tokens: Path,
    logits: Path,
    prompts: Sequence[str],
    max_tokens: int,
    hints: Mapping[str, Any] | None = None,
) -> None:
    """Raises StageError for a package that does not run, or a prompt that does not fit its context."""
    engine = load(package, threads=threads_of(hints), function="decode")
    chosen: list[list[int]] = []
    rows: list[Array] = []
    with failing_as_stage():
        tokenizer = PackageTokenizer(engine.package)
        prompt_ids = [tokenizer.encode_raw(prompt) for prompt in prompts]
        for prompt in prompt_ids:
            found = _greedy(engine, prompt, max_tokens)
            rows += found
            chosen.append([int(np.argmax(row)) for row in found])
    if not np.isfinite(rows).all():
        raise StageError("some logits of the reference are not finite numbers")
    tokens.write_text(json.dumps({"prompts": prompt_ids, "chosen": chosen}) + "\n")
    np.save(logits, np.stack(rows))


def _greedy(model: Model, prompt: list[int], count: int) -> list[Array]:
    model.reset(capacity=len(prompt) + count)
    rows = [model.prefill(prompt)]
    while len(rows) < count:
        rows.append(model.decode(int(np.argmax(rows[-1]))))
    return rows
