"""A canonical order for the host functions that VMShapeLower makes.

Each stores symbolic sizes into slots of one small buffer. The pass emits independent stores in the order of a hash
of pointers, another one in each process; sorted by slot they are the same everywhere.
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import BufferStore

from mlcbuild.errors import InternalError

_OPERANDS = ("a", "b", "value", "condition", "true_value", "false_value")


def canonical_shape_function(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with its stores sorted by slot. A function of another form is returned as it is; one whose
    stores depend on each other raises InternalError."""
    body = function.body
    if not isinstance(body, tirx.SeqStmt):
        return function
    stores = list(body.seq)
    if not all(isinstance(store, BufferStore) for store in stores):
        return function
    written = {_slot(store) for store in stores}
    for store in stores:
        if _slots_read(store.value) & written:
            raise InternalError("a shape function reads a slot that it also writes; its order cannot be changed")
    return function.with_body(tirx.SeqStmt(sorted(stores, key=_slot)))


def _slot(store: BufferStore) -> int:
    (index,) = store.indices
    return int(index)


def _slots_read(expression: object) -> set[int]:
    if isinstance(expression, TensorLoad):
        return {int(expression.indices[0])}
    parts = [getattr(expression, name, None) for name in _OPERANDS]
    children = [part for part in (*parts, *getattr(expression, "args", ())) if isinstance(part, tirx.Expr)]
    return {slot for child in children for slot in _slots_read(child)}
