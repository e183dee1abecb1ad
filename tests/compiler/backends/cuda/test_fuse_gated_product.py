"""Which products become one kernel with the block that multiplies their halves."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax, te, tirx

from mlcbuild.compiler.backends.cuda.passes.fuse_gated_product import fuse_gated_product
from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET
from tests.compiler.kernel_running import packed_product

_K = 128


def _halves(n: int, *, apart: int) -> tirx.PrimFunc:
    """(1, rows, n) → (1, rows, n / 2): the element at j times that `apart` further."""
    one, rows = tirx.IntImm("int64", 1), tirx.Var("rows", "int64")
    x = te.placeholder((one, rows, tirx.IntImm("int64", n)), "float16", name="x")
    shape = (one, rows, tirx.IntImm("int64", n // 2))
    return te.create_prim_func([x, te.compute(shape, lambda a, b, j: x[a, b, j] * x[a, b, j + apart], name="multiply")])


def _two_results(n: int) -> tirx.PrimFunc:
    """(1, rows, n) → (1, rows, n / 2) twice, as queries and keys are taken from one product."""
    one, rows = tirx.IntImm("int64", 1), tirx.Var("rows", "int64")
    x = te.placeholder((one, rows, tirx.IntImm("int64", n)), "float16", name="x")
    shape = (one, rows, tirx.IntImm("int64", n // 2))
    first = te.compute(shape, lambda a, b, j: x[a, b, j], name="first")
    second = te.compute(shape, lambda a, b, j: x[a, b, j + n // 2], name="second")
    return te.create_prim_func([x, first, second])


def test_what_makes_several_results_of_a_product_stays_apart() -> None:
    builder = relax.BlockBuilder()
    rows = tirx.Var("rows", "int64")
    x = relax.Var("x", relax.TensorType((1, rows, _K), "float16"))
    words = relax.Var("words", relax.TensorType((64, _K // 8), "uint32"))
    scales = relax.Var("scales", relax.TensorType((64, _K // 32), "float16"))
    kernels = (packed_product(64, _K, None, dtype="float16", bits=4), _two_results(64))
    product, split = (builder.add_func(each.without_attr("global_symbol"), "kernel") for each in kernels)
    part = relax.TensorType((1, rows, 32), "float16")
    with builder.function("main", [x, words, scales]):
        with builder.dataflow():
            whole = relax.TensorType((1, rows, 64), "float16")
            result = builder.emit(relax.call_tir(product, [x, words, scales], whole))
            output = builder.emit_output(relax.call_tir(split, [result], [part, part]))
        builder.emit_func_output(output)
    fused = fuse_gated_product(builder.get(), tvm.target.Target({**CUDA_TARGET, "arch": "sm_90"}))
    assert sum(isinstance(function, tirx.PrimFunc) for _, function in fused.functions_items()) == 2


def _kernels(*, n: int = 64, bits: int = 4, arch: str = "sm_90", twice: bool = False, apart: int | None = None) -> int:
    """How many kernels are left of a product and what reads it."""
    builder = relax.BlockBuilder()
    rows = tirx.Var("rows", "int64")
    group, per_word = 32, 32 // bits
    x = relax.Var("x", relax.TensorType((1, rows, _K), "float16"))
    words = relax.Var("words", relax.TensorType((n, _K // per_word), "uint32"))
    scales = relax.Var("scales", relax.TensorType((n, _K // group), "float16"))
    product = packed_product(n, _K, None, dtype="float16", bits=bits)
    halves = _halves(n, apart=n // 2 if apart is None else apart)
    names = ("product", "halves")
    made = [function.without_attr("global_symbol") for function in (product, halves)]
    first, second = (builder.add_func(function, name) for function, name in zip(made, names, strict=True))
    with builder.function("main", [x, words, scales]):
        with builder.dataflow():
            result = builder.emit(relax.call_tir(first, [x, words, scales], relax.TensorType((1, rows, n), "float16")))
            gated = builder.emit(relax.call_tir(second, [result], relax.TensorType((1, rows, n // 2), "float16")))
            output = builder.emit_output(relax.Tuple([result, gated]) if twice else gated)
        builder.emit_func_output(output)
    fused = fuse_gated_product(builder.get(), tvm.target.Target({**CUDA_TARGET, "arch": arch}))
    module = relax.transform.DeadCodeElimination()(fused)
    return sum(isinstance(function, tirx.PrimFunc) for _, function in module.functions_items())


@pytest.mark.parametrize("bits", [4, 8])
def test_a_product_and_what_multiplies_its_halves_are_one_kernel(bits: int) -> None:
    assert _kernels(bits=bits) == 1


@pytest.mark.parametrize(
    "given",
    [{"arch": "sm_75"}, {"n": 24}, {"twice": True}, {"apart": 16}],
    ids=["no such tensor cores", "eights across the halves", "also read elsewhere", "no halves"],
)
def test_what_no_kernel_computes_together_stays_apart(given: dict[str, int]) -> None:
    assert _kernels(**given) == 2  # type: ignore[arg-type]
