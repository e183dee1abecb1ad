"""Rotation of queries and keys inside attention, for a cache that keeps keys as they are.

Where a query is beyond the window, keys of the sink stay as far from it as they are from the last query that sees
everything: they meet a query that is rotated for that position.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels.rotation import rotated, store_frequencies, store_rotation
from mlcbuild.compiler.kernels.building import Buffer, Expression, loop
from mlcbuild.compiler.models.architecture.window import SlidingWindow


@dataclass(frozen=True, kw_only=True)
class KeyRotation:
    """Cosines and sines for the keys of a sequence, (most keys, head_dim / 2), and the position of a query."""

    frequencies: Buffer
    cosines: Buffer
    sines: Buffer
    scale: Expression
    position: Expression | None = None
    sink_position: Expression | None = None  # for keys of the sink, where a window has one

    @staticmethod
    def create(
        queries: Buffer, scale: Expression, theta: Expression, rope_scaling: Mapping[str, Any], *, most: Expression
    ) -> KeyRotation:
        half = int(queries.shape[2]) // 2
        frequencies = T.alloc_buffer((half,), "float32")
        store_frequencies(frequencies, theta=theta, rope_scaling=rope_scaling)
        cosines, sines = (T.alloc_buffer((most, half), "float32") for _ in range(2))
        return KeyRotation(frequencies=frequencies, cosines=cosines, sines=sines, scale=scale)

    def store_keys(self, first: Expression, count: Expression) -> None:
        """Fills the tables, for keys whose positions begin at `first`."""
        with loop(count, parallel=True) as key:
            position = T.bind(T.Cast("float32", first + key) * self.scale)
            store_rotation(position, self.frequencies, self.cosines, self.sines, key)

    def of_query(self, position: Expression, window: SlidingWindow | None) -> KeyRotation:
        sink_position = tirx.min(position, window.size - 1) if window is not None and window.sink else None
        return dataclasses.replace(self, position=position, sink_position=sink_position)

    def turn_query(self, vectors: list[Expression], position: Expression) -> list[Expression]:
        half = int(self.frequencies.shape[0])
        cosines, sines = (T.alloc_buffer((half,), "float32") for _ in range(2))
        position = T.bind(T.Cast("float32", position) * self.scale)
        store_rotation(position, self.frequencies, cosines, sines)
        return rotated(vectors, cosines, sines)

    def turn_key(self, vectors: list[Expression], key: Expression) -> list[Expression]:
        return rotated(vectors, self.cosines, self.sines, key)
