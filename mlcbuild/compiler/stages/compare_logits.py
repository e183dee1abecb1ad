"""CompareLogits: whether two packages say the same, to a bound.

Reads `reference` and `checked`, .npy files of float32 (steps, vocabulary), and `tokens` as RunLogits wrote it. Writes
`report`, JSON::

    {"steps": int, "largest_error": float, "step": int, "token": int, "tolerance": float,
     "largest_reference": float, "other_choices": int}

The error is the largest difference of two logits, at `step` for `token`; `other_choices` counts the steps at which the
checked package's likeliest token is another one.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from mlcbuild.errors import StageError


def run(*, reference: Path, checked: Path, tokens: Path, report: Path, tolerance: float) -> None:
    """Raises StageError where the error is above `tolerance`, or a logit is not a number."""
    wanted, found = np.load(reference), np.load(checked)
    if wanted.shape != found.shape:
        raise StageError(f"the logits have the shapes {wanted.shape} and {found.shape}: these are two models")
    if not (np.isfinite(wanted).all() and np.isfinite(found).all()):
        raise StageError("some logits are not finite numbers")
    errors = np.abs(wanted.astype(np.float64) - found)
    step, token = (int(index) for index in np.unravel_index(int(np.argmax(errors)), errors.shape))
    largest = float(errors[step, token])
    others = int(np.count_nonzero(np.argmax(wanted, axis=1) != np.argmax(found, axis=1)))
    if largest > tolerance:
        place = _place(json.loads(tokens.read_text()), step)
        raise StageError(
            f"{place} the logit of token {token} is {found[step, token]:.4f}, and "
            f"{wanted[step, token]:.4f} by the reference: {largest:.4f} apart, allowed are {tolerance:g}",
            advice=(f"{others} of {len(wanted)} steps would choose another token",),
        )
    document = {
        "steps": len(wanted),
        "largest_error": largest,
        "step": step,
        "token": token,
        "tolerance": tolerance,
        "largest_reference": float(np.abs(wanted).max()),
        "other_choices": others,
    }
    report.write_text(json.dumps(document, indent=2) + "\n")


def _place(tokens: dict[str, list[list[int]]], step: int) -> str:
    for number, chosen in enumerate(tokens["chosen"], 1):
        if step < len(chosen):
            return f"prompt {number}, token {step + 1}:"
        step -= len(chosen)
    return f"step {step}:"
