"""LogitsTest: whether a package has the logits of a reference, to a bound.

The reference is `tokens` and `logits` of RunReference, or a .npz file as `mlcbuild run LABEL -- --logits FILE.npz`
writes it. The package is fed the same tokens. The error is the largest difference of two logits.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.stages.tested_package import failing_as_stage, load, threads_of
from mlcbuild.errors import StageError
from mlcbuild.runtime.logits import Array
from mlcbuild.runtime.model import Model
from mlcbuild.runtime.test_result import TestResult

_TOKENS, _LOGITS = "tokens", "logits"


@dataclass(frozen=True, kw_only=True)
class _Prompt:
    """`wanted` has a row (vocabulary,) for each of the tokens from number `first` on: the logits after it."""

    name: str
    tokens: tuple[int, ...]
    first: int
    wanted: Array


def against_package(
    *,
    package: Path,
    tokens: Path,
    logits: Path,
    result: Path,
    tolerance: float,
    hints: Mapping[str, Any] | None = None,
) -> None:
    """Raises StageError where the error is above `tolerance`, or a logit is not a number."""
    document, rows = json.loads(tokens.read_text()), np.load(logits)
    prompts, begin = [], 0
    for number, (prompt, chosen) in enumerate(zip(document["prompts"], document["chosen"], strict=True), 1):
        wanted = rows[begin : begin + len(chosen)]
        prompts.append(
            _Prompt(name=f"prompt {number}", tokens=(*prompt, *chosen[:-1]), first=len(prompt) - 1, wanted=wanted)
        )
        begin += len(chosen)
    _compare(package, prompts, result, tolerance, hints)


def against_file(
    *, package: Path, reference: Path, result: Path, tolerance: float, hints: Mapping[str, Any] | None = None
) -> None:
    """Raises StageError as `against_package` does, and for a file that is none of logits."""
    _compare(package, list(_prompts_of(reference)), result, tolerance, hints)


def _prompts_of(reference: Path) -> Iterator[_Prompt]:
    try:
        with np.load(reference, allow_pickle=False) as arrays:
            endings = sorted(name.removeprefix(_TOKENS) for name in arrays if name.startswith(_TOKENS))
            if not endings:
                raise StageError(f"{reference.name} has no array tokens")
            for ending in endings:
                tokens, logits = arrays[f"{_TOKENS}{ending}"], arrays[f"{_LOGITS}{ending}"]
                wanted = logits[None, :] if logits.ndim == 1 else logits
                if tokens.ndim != 1 or wanted.ndim != 2 or not 0 < len(wanted) <= len(tokens):
                    raise StageError(
                        f"{reference.name} has tokens {tokens.shape} and logits {logits.shape} of one prompt: logits "
                        "belong to the last token, or to each"
                    )
                yield _Prompt(
                    name=f"prompt {ending.lstrip('.') or 1}",
                    tokens=tuple(map(int, tokens)),
                    first=len(tokens) - len(wanted),
                    wanted=wanted,
                )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise StageError(
            f"{reference.name} is no file of logits: {error}",
            advice=("make one with: mlcbuild run LABEL -- --prompt TEXT --logits FILE.npz",),
        ) from error


def _compare(
    package: Path, prompts: list[_Prompt], result: Path, tolerance: float, hints: Mapping[str, Any] | None
) -> None:
    model = load(package, threads=threads_of(hints), function="batch_verify")
    largest, place, choices, steps, greatest = -1.0, "", 0, 0, 0.0
    for prompt in prompts:
        found = _logits(model, prompt)
        if found.shape != prompt.wanted.shape:
            raise StageError(
                f"the vocabularies have {found.shape[1]} and {prompt.wanted.shape[1]} tokens: these are two models"
            )
        if not (np.isfinite(prompt.wanted).all() and np.isfinite(found).all()):
            whose = "the package" if np.isfinite(prompt.wanted).all() else "the reference"
            raise StageError(f"{prompt.name}: some logits of {whose} are not finite numbers")
        errors = np.abs(prompt.wanted.astype(np.float64) - found)
        row, token = (int(index) for index in np.unravel_index(int(np.argmax(errors)), errors.shape))
        steps += len(found)
        greatest = max(greatest, float(np.abs(prompt.wanted).max()))
        choices += int(np.count_nonzero(np.argmax(prompt.wanted, axis=1) != np.argmax(found, axis=1)))
        if errors[row, token] > largest:
            largest = float(errors[row, token])
            place = (
                f"{prompt.name}, after token {prompt.first + row + 1}: the logit of token {token} is "
                f"{found[row, token]:.4f}, and {prompt.wanted[row, token]:.4f} by the reference"
            )
    passed = largest <= tolerance
    TestResult(
        test="logits_test",
        passed=passed,
        summary=f"largest error {largest:.3g}, at most {tolerance:g}",
        figures={
            "largest_error": largest,
            "tolerance": tolerance,
            "steps": steps,
            "largest_reference": greatest,
            "other_choices": choices,
        },
        advice=() if passed else (place, f"{choices} of {steps} steps would choose another token"),
    ).report(result)


def _logits(model: Model, prompt: _Prompt) -> Array:
    """Those after each token from `first` on."""
    if not prompt.tokens:
        raise StageError(f"{prompt.name} has no tokens")
    given = prompt.tokens
    with failing_as_stage():
        model.reset(capacity=len(given))
        if prompt.first:
            model.prefill(given[: prompt.first])
        return np.concatenate(list(model.prefill_in_pieces(given[prompt.first :], every_token=True)))
