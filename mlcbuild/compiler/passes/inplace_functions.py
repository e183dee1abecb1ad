"""Functions of a library that do no more than to call one kernel, which changes one of its arguments.

Kernels bear the names of their content, so that what an engine calls by name has to be a function of the graph.
"""

from __future__ import annotations

from tvm import relax, tirx


def add_inplace_function(builder: relax.BlockBuilder, name: str, kernel: tirx.PrimFunc, *, changed: int) -> None:
    """Add a function of that name with the parameters of `kernel`, which returns the one that is changed."""
    parameters = [
        relax.Var(str(buffer.name), relax.TensorType(list(buffer.shape), str(buffer.dtype))) for buffer in kernel.params
    ]
    with builder.function(name, parameters):
        with builder.dataflow():
            called = builder.add_func(kernel, f"{name}_kernel")
            call = relax.op.call_tir_inplace(called, parameters, [changed], out_ty=parameters[changed].ty)
            result = builder.emit_output(call)
        made = builder.emit_func_output(result)
    # Types still hold the kernel's symbolic sizes.
    builder.update_func(made, relax.utils.copy_with_new_vars(builder.get()[made]))
