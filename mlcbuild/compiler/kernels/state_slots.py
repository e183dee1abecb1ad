"""How the states of sequences are read from the storage of TVM's RNNState, and written to it.

The storage is (most sequences, most history, size). A sequence has a slot, and in it a history of its latest states,
which begins again where it ends: `history_slots` tell which of them is the present one. What is written is the next.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import s_tir, tirx

from mlcbuild.compiler.kernels.building import Buffer, statement


def read_states(size: int, dtype: str) -> tirx.PrimFunc:
    """(storage, slots (n,) int32, history_slots (n,) int32) → states (n, size)."""
    storage, slots, history, states = _parameters(size, dtype)

    def body() -> None:
        with T.grid(states.shape[0], T.int64(size)) as (sequence, place), T.sblock("read"):
            n, k = T.axis.spatial(states.shape[0], sequence), T.axis.spatial(T.int64(size), place)
            T.reads(slots[n], history[n], storage[0 : storage.shape[0], 0 : storage.shape[1], k])
            T.writes(states[n, k])
            own = storage[T.Cast("int64", slots[n]), T.Cast("int64", history[n]), k]
            T.buffer_store(states, own, [n, k])

    return _function([storage, slots, history, states], body)


def write_states(size: int, dtype: str) -> tirx.PrimFunc:
    """(storage, slots (n,) int32, history_slots (n,) int32, states (n, size)): storage is changed."""
    storage, slots, history, states = _parameters(size, dtype)

    def body() -> None:
        with T.grid(states.shape[0], T.int64(size)) as (sequence, place), T.sblock("write"):
            n, k = T.axis.spatial(states.shape[0], sequence), T.axis.spatial(T.int64(size), place)
            T.reads(slots[n], history[n], states[n, k])
            T.writes(storage[0 : storage.shape[0], 0 : storage.shape[1], k])
            following = tirx.floormod(T.Cast("int64", history[n]) + T.int64(1), storage.shape[1])
            T.buffer_store(storage, states[n, k], [T.Cast("int64", slots[n]), following, k])

    return _function([storage, slots, history, states], body)


def _parameters(size: int, dtype: str) -> tuple[Buffer, ...]:
    most, length, count = (tirx.Var(name, "int64") for name in ("most_sequences", "most_history", "sequences"))
    return (
        tirx.decl_buffer((most, length, size), dtype, name="storage"),
        tirx.decl_buffer((count,), "int32", name="slots"),
        tirx.decl_buffer((count,), "int32", name="history_slots"),
        tirx.decl_buffer((count, size), dtype, name="states"),
    )


def _function(parameters: list[Buffer], body: Callable[[], None]) -> tirx.PrimFunc:
    block = s_tir.SBlock(iter_vars=[], reads=[], writes=[], name_hint="root", body=statement(body))
    made = tirx.PrimFunc(parameters, s_tir.SBlockRealize([], True, block))
    return made.with_attrs({"tirx.noalias": True, "s_tir": True})
