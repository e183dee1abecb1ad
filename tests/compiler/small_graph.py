"""A module with two kernels and no model: quick to take through Partition, Lower and Link."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import relax, te, tirx

from mlcbuild.compiler import ir
from tests.compiler.resolving import write_resolved
from tests.compiler.tiny_llama import TINY_LLAMA

CONTEXT = 64


def write_small_graph(directory: Path, *, factor: float = 2.0) -> None:
    """Write `phase3.json`, a module whose `main(x (n, 8) float32)` gives factor * x + 1, scaled twice,
    `metadata.phase0.json`, and `model.json` and `parameters.json` of a model with a context of `CONTEXT` tokens."""
    builder = relax.BlockBuilder()
    rows = tirx.Var("seq_len", "int64")
    x = relax.Var("x", relax.TensorType((rows, 8), "float32"))

    def scaled(a: te.Tensor) -> te.Tensor:
        return te.compute(a.shape, lambda i, j: a[i, j] * tirx.const(factor, "float32"), name="scaled")

    def increased(a: te.Tensor) -> te.Tensor:
        return te.compute(a.shape, lambda i, j: a[i, j] + tirx.const(1.0, "float32"), name="increased")

    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit_te(scaled, x)
            second = builder.emit_te(scaled, first)
            result = builder.emit_output(builder.call_te(increased, second))
        builder.emit_func_output(result)
    directory.mkdir(parents=True, exist_ok=True)
    ir.save_module(_with_a_twin(builder.finalize()), directory / "phase3.json")
    (directory / "metadata.phase0.json").write_text('{"model_task": "chat", "quantization": "q0f32"}')
    write_resolved(directory, TINY_LLAMA | {"max_position_embeddings": CONTEXT})


def _with_a_twin(module: tvm.IRModule) -> tvm.IRModule:
    """The module with a second name for the kernel `scaled`, called by a function of its own."""
    builder = relax.BlockBuilder(module)
    twin = tvm.ir.GlobalVar("twin")
    rows = tirx.Var("n", "int64")
    y = relax.Var("y", relax.TensorType((rows, 8), "float32"))
    twin = builder.add_func(module["scaled"].with_attr("twin", 1), "twin")
    with builder.function("other", [y]):
        with builder.dataflow():
            out = builder.emit_output(relax.call_tir(twin, (y,), out_ty=y.ty))
        builder.emit_func_output(out)
    made = builder.finalize()
    made.update_func(made.get_global_var("twin"), made["twin"].without_attr("twin"))
    return made
