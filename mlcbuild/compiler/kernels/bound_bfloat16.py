"""What kernels in bfloat16 bind to a name is stored first, so that TVM computes it right.

Where a target has no arithmetic in bfloat16, TVM computes in float32 (its pass BF16ComputeLegalize) and then takes
bfloat16 in memory for 16-bit integers (BF16StorageLegalize). The first pass of TVM 0.27 looks into stores, and not into
the values of `tirx.Bind`: these would be computed of integers, without an error. A value that is stored in a buffer of
one element and read back is computed right, and compiled to the same instructions.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

_NARROW = "bfloat16"


def store_before_binding(module: tvm.IRModule) -> tvm.IRModule:
    """The module with every bound value that is computed of bfloat16 numbers stored in float32 first; a module without
    bfloat16 as it is."""
    if _NARROW not in tvm.ir.save_json(module):
        return module
    functions = {
        variable: function.with_body(_stored(function.body)) if isinstance(function, tirx.PrimFunc) else function
        for variable, function in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _stored(body: tirx.Stmt) -> tirx.Stmt:
    wide: dict[tirx.Var, tirx.Var] = {}  # in place of variables that are bfloat16 themselves

    def statements(sequence: tirx.SeqStmt) -> tirx.Stmt:
        made: list[tirx.Stmt] = []
        for statement in sequence.seq:
            if isinstance(statement, tirx.Bind) and _is_of_bfloat16(statement.value):
                made += _through_memory(statement, wide)
            else:
                made.append(statement)
        return tirx.SeqStmt(made)

    body = tvm_ffi.structural_map(body, (tirx.SeqStmt, statements))
    if not wide:
        return body
    return tvm_ffi.structural_map(
        body,
        (tirx.Var, lambda variable: tirx.Cast(variable.ty.dtype, wide[variable]) if variable in wide else variable),
    )


def _through_memory(bind: tirx.Bind, wide: dict[tirx.Var, tirx.Var]) -> list[tirx.Stmt]:
    """Statements for a binding: a buffer, the value's store, and a binding of what is read back."""
    variable, value = bind.var, bind.value
    kind, _, lanes = str(value.ty.dtype).partition("x")
    if kind == _NARROW:
        value = tirx.Cast(str(value.ty.dtype).replace(_NARROW, "float32"), value)
        wide[variable] = variable = tirx.Var(variable.name, value.ty.dtype)
        kind = "float32"
    buffer = tirx.decl_buffer((int(lanes or 1),), kind, name=f"{variable.name}_value", scope="local")
    place = tirx.Ramp(0, 1, int(lanes)) if lanes else tirx.const(0, "int32")
    return [
        tirx.AllocBuffer(buffer),
        tirx.BufferStore(buffer, value, [place]),
        tirx.Bind(variable, buffer[place]),
    ]


def _is_of_bfloat16(value: Any) -> bool:
    found = False

    def look(expression: Any) -> Any:
        nonlocal found
        found = found or str(expression.ty.dtype).startswith(_NARROW)
        return expression

    tvm_ffi.structural_map(value, ((tvm.ir.TensorLoad, tirx.Cast, tirx.FloatImm), look))
    return found
