"""Recurrences of all kinds that the kernels of each backend are tested with, and NumPy's results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcbuild.compiler.kernels.state_scan import StateScan

Array = npt.NDArray[Any]

_SCAN = StateScan(
    heads=4,
    rows=3,
    groups=2,
    columns=16,
    value_at=0,
    key_at=12,
    query_at=44,
    channels=77,
    delta=False,
    dtype="float32",
)
SCANS = (
    _SCAN,
    replace(_SCAN, delta=True),
    replace(_SCAN, columns=40, query_at=92, channels=172, dtype="float16"),
    replace(_SCAN, heads=2, rows=64, columns=5, key_at=128, query_at=138, channels=148, delta=True),
)
LENGTHS = (7, 1, 0, 4)


def inputs(scan: StateScan, lengths: Sequence[int] = LENGTHS) -> list[Array]:
    """What a kernel takes, for sequences of these lengths."""
    random = np.random.default_rng(3)
    tokens = sum(lengths)
    packed = random.standard_normal((tokens, scan.channels)).astype(scan.dtype) / 2
    decay = random.uniform(0.3, 1, (tokens, scan.heads)).astype(np.float32)
    rate = random.uniform(0, 1, (tokens, scan.heads)).astype(np.float32)
    states = random.standard_normal((len(lengths), scan.state_size)).astype(np.float32)
    ends = np.cumsum(lengths).astype(np.int32)
    return [packed, decay, rate, states, ends - np.array(lengths, np.int32), ends]


def outputs(
    scan: StateScan, packed: Array, decay: Array, rate: Array, states: Array, begins: Array, ends: Array
) -> list[Array]:
    """What it makes of them, in float64."""
    wide = packed.astype(np.float64)
    y = np.zeros((len(packed), scan.heads, scan.rows))
    made = states.astype(np.float64).reshape(-1, scan.heads, scan.rows, scan.columns)
    for sequence, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        for token in range(begin, end):
            for head in range(scan.heads):
                group = head * scan.groups // scan.heads
                key, query = (
                    wide[token, at + group * scan.columns :][: scan.columns] for at in (scan.key_at, scan.query_at)
                )
                value = wide[token, scan.value_at + head * scan.rows :][: scan.rows]
                state = made[sequence, head] * decay[token, head]
                difference = rate[token, head] * (value - state @ key if scan.delta else value)
                made[sequence, head] = state + difference[:, None] * key
                y[token, head] = made[sequence, head] @ query
    return [y.reshape(len(packed), -1), made.reshape(states.shape)]
