"""Restored matrices are made inside the kernel that reads them; which kernels restore is said by an attribute."""

from __future__ import annotations

from tvm import relax, te, tirx

from mlcbuild.compiler.kernel_attributes import RESTORES_WEIGHTS
from mlcbuild.compiler.passes.fuse_dequantize import fuse_dequantize


def _kernel(made: te.Tensor, *inputs: te.Tensor) -> tirx.PrimFunc:
    return te.create_prim_func([*inputs, made]).without_attr("global_symbol").with_attr("tirx.noalias", True)


def _fused(*, marked: bool) -> list[str]:
    """The names of the kernels that are left of `unpack`, then `measure`, which reads what it made."""
    x = te.placeholder((8, 4), "int8", "x")
    w = te.placeholder((8, 4), "float32", "w")
    unpack = _kernel(te.compute((8, 4), lambda i, j: x[i, j].astype("float32") * 2, name="unpack"), x)
    measure = _kernel(te.compute((4,), lambda i: w[2 * i, i], name="measure"), w)
    builder = relax.BlockBuilder()
    stored = relax.Var("stored", relax.TensorType((8, 4), "int8"))
    with builder.function("main", [stored]):
        with builder.dataflow():
            marks = {RESTORES_WEIGHTS: True} if marked else {}
            kernels = [builder.add_func(unpack.with_attr(marks), "unpack"), builder.add_func(measure, "measure")]
            matrix = builder.emit(relax.call_tir(kernels[0], [stored], relax.TensorType((8, 4), "float32")))
            read = builder.emit_output(relax.call_tir(kernels[1], [matrix], relax.TensorType((4,), "float32")))
        builder.emit_func_output(read)
    module = relax.transform.DeadCodeElimination()(fuse_dequantize(builder.get()))
    return sorted(str(v.name_hint) for v, f in module.functions_items() if isinstance(f, tirx.PrimFunc))


def test_what_says_that_it_restores_weights_is_fused_into_its_reader_whatever_both_are_called() -> None:
    assert _fused(marked=True) == ["fused_unpack_measure"]


def test_what_does_not_say_so_stays_a_kernel_of_its_own() -> None:
    assert _fused(marked=False) == ["measure", "unpack"]
