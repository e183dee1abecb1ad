"""The states of sequences as a model sees them: TVM's RNNState, which reads and writes them by kernels of the library.

A state is a vector of fixed size; a layer has several, which are known by their places. The object keeps the latest
states of each sequence, as many as an engine asks for, so that it can take back tokens that came one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.kernels.state_slots import read_states, write_states


@dataclass(frozen=True, slots=True, kw_only=True)
class StateVector:
    """One of the states that a layer keeps for a sequence. It begins as zeros."""

    size: int
    dtype: str


class RecurrentState(nn.Object):  # type: ignore[misc]
    """TVM's RNNState in a forward pass. What `write` returns is the state to go on with."""

    def read(self, layer: relax.Expr, place: int, vector: StateVector, sequences: tirx.Expr) -> nn.Tensor:
        """The states (sequences, size) of a layer before the pass."""
        called = relax.call_dps_packed(
            "vm.builtin.rnn_state_get",
            [self._expr, layer, relax.prim_value(place)],
            out_ty=relax.TensorType((sequences, vector.size), vector.dtype),
        )
        return nn.Tensor(_expr=relax.BlockBuilder.current().emit(called))

    def write(self, layer: relax.Expr, place: int, states: nn.Tensor) -> RecurrentState:
        """With the states (sequences, size) of a layer behind the pass."""
        called = relax.call_pure_packed(
            "vm.builtin.rnn_state_set",
            self._expr,
            layer,
            relax.prim_value(place),
            states._expr,
            ty_args=relax.AnyType(),
        )
        return RecurrentState(_expr=called, _name="rnn_state")


def create_recurrent_state(
    vectors: Sequence[StateVector], *, layers: int, most_sequences: tirx.Var, most_history: tirx.Var
) -> RecurrentState:
    """An empty RNNState of so many layers, each with these states."""
    builder = relax.BlockBuilder.current()
    readers = [
        builder.add_func(read_states(vector.size, vector.dtype), f"rnn_state_get_{place}")
        for place, vector in enumerate(vectors)
    ]
    writers = [
        builder.add_func(write_states(vector.size, vector.dtype), f"rnn_state_set_{place}")
        for place, vector in enumerate(vectors)
    ]
    created = relax.call_pure_packed(
        "vm.builtin.rnn_state_create",
        relax.prim_value(layers),
        most_sequences,
        most_history,
        relax.Tuple(readers),
        relax.Tuple(writers),
        relax.Tuple([relax.const([0.0] * vector.size, vector.dtype) for vector in vectors]),
        ty_args=relax.AnyType(),
    )
    return RecurrentState(_expr=created, _name="rnn_state")
