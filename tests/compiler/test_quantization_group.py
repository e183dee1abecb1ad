"""Group quantization against its formula, worked out weight by weight, and the packing of integers into words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.group.encoder import GroupEncoder
from mlcbuild.compiler.quantization.group.scheme import GroupScheme
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler import schemes
from tests.compiler.schemes import matrix
from tests.compiler.tiny_models import Array

DTYPES = ("float32", "float16", "bfloat16")
INT4 = {dtype: GroupScheme(name="int4", model_dtype=dtype, bits=4, group_size=32) for dtype in DTYPES}


def quantize(weights: Array) -> tuple[Array, Array]:
    words, scales = GroupEncoder(INT4[weights.dtype.name]).encode(matrix(weights.shape), weights)
    return words, scales


def unpack(words: Array) -> Array:
    return GroupEncoder(INT4["float32"]).unpack(words)


def integer_by_formula(weight: np.floating, largest: np.floating) -> int:
    """The definition, one weight at a time, each step rounded to the weights' type by NumPy's scalars."""
    kind = type(weight)
    scale = kind(largest / kind(7))
    if scale == 0 and weight == 0:
        return 0
    with np.errstate(divide="ignore"):
        shifted = kind(kind(weight / scale) + kind(7))
    if shifted <= 0:
        return 0
    return 14 if shifted >= 14 else round(float(shifted))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_integers_and_scales_are_those_of_the_formula(dtype: str) -> None:
    random = np.random.default_rng(5)
    weights = (random.standard_normal((6, 96)) * 0.05).astype(dtype)
    weights[1, :32] = 0
    weights[2, :32] = np.linspace(-7, 7, 32, dtype=dtype)
    weights[3, :15] = np.arange(15) / 2 - 3.5  # quotients that end in a half where the scale is 1
    weights[3, 15:32] = 7
    weights[4, :32] = np.array(1e-7 if dtype == "float16" else 1e-45, dtype)  # the scale underflows
    packed, scales = quantize(weights)
    assert packed.dtype == np.uint32
    assert packed.shape == (6, 12)
    assert scales.dtype == weights.dtype
    assert scales.shape == (6, 3)
    for row in range(6):
        for group in range(3):
            members = weights[row, group * 32 : group * 32 + 32]
            largest = np.abs(members).max()
            assert scales[row, group] == weights.dtype.type(largest / weights.dtype.type(7))
            words = packed[row, group * 4 : group * 4 + 4]
            found = [int(words[lane // 8]) >> (4 * (lane % 8)) & 15 for lane in range(32)]
            assert found == [integer_by_formula(weight, largest) for weight in members]


_GROUPED = [name for name in schemes.NAMES if schemes.scheme(name).kind == "group-quant"]


@pytest.mark.parametrize("name", _GROUPED)
def test_bits_are_those_of_a_kernel_compiled_by_tvm(name: str) -> None:
    """MLC-LLM's definition, in TVM: rows of 500 end within a group, where the scheme has such."""
    import tvm
    from tvm import te, tirx

    scheme = schemes.scheme(name)
    assert isinstance(scheme, GroupScheme)
    dtype, group, bits, lanes = scheme.model_dtype, scheme.group_size, scheme.bits, 32 // scheme.bits
    rows, columns = 64, 500 if scheme.partial_groups else 512
    groups = -(-columns // group)
    weight = te.placeholder((rows, columns), dtype, name="weight")
    largest_integer = tirx.const(2 ** (bits - 1) - 1, dtype)
    member, lane = te.reduce_axis((0, group), name="member"), te.reduce_axis((0, lanes), name="lane")

    def size(i: tirx.Var, j: tirx.Expr) -> tirx.Expr:
        return tirx.if_then_else(j < columns, te.abs(weight[i, tirx.min(j, columns - 1)]), te.min_value(dtype))

    def integer(i: tirx.Var, j: tirx.Expr) -> tirx.Expr:
        place = tirx.min(j, columns - 1)
        moved = tirx.round(weight[i, place] / scale[i, place // group] + largest_integer)
        limited = tirx.min(tirx.max(moved, tirx.const(0, dtype)), largest_integer * 2)
        return tirx.if_then_else(j < columns, limited.astype("uint32"), tirx.const(0, "uint32"))

    largest = te.compute((rows, groups), lambda i, g: te.max(size(i, g * group + member), axis=member))
    scale = te.compute((rows, groups), lambda i, g: largest[i, g] / largest_integer)
    words = te.compute(
        (rows, groups * group // lanes),
        lambda i, w: te.sum(integer(i, w * lanes + lane) << (lane * bits).astype("uint32"), axis=lane),
    )
    function = te.create_prim_func([weight, scale, words]).with_attr("global_symbol", "main")
    kernel = tvm.compile(tvm.IRModule({"main": function}), target={"kind": "llvm", "mcpu": "x86-64-v3"})
    random = np.random.default_rng(9)
    sizes = np.exp(random.uniform(-12, 3, (rows, 1)))
    weights = (random.standard_normal((rows, columns)) * sizes).astype(dtype_of(dtype))
    weights[5, group : 2 * group] = 0
    expected_scales = tvm.runtime.tensor(np.zeros((rows, groups), dtype_of(dtype)))
    expected_words = tvm.runtime.tensor(np.zeros((rows, groups * group // lanes), "uint32"))
    kernel["main"](tvm.runtime.tensor(weights), expected_scales, expected_words)
    expected = [array.numpy() for array in (expected_words, expected_scales)]
    for role in (ParameterRole.LINEAR, ParameterRole.EMBEDDING):
        if not scheme.covers(role):
            continue
        found = GroupEncoder(scheme).encode(matrix(weights.shape, role=role), weights)
        by_columns = name.endswith("_0") and role is ParameterRole.LINEAR
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other.T if by_columns else other)


def test_ties_go_to_the_even_integer() -> None:
    weights = np.zeros((1, 32), np.float32)
    weights[0, :4] = [7, 0.5, 1.5, -0.5]  # the scale is 1: 7.5, 8.5 and 6.5 are rounded
    packed, _ = quantize(weights)
    assert unpack(packed)[0, :4].tolist() == [14, 8, 8, 6]


@st.composite
def packings(draw: st.DrawFn) -> tuple[GroupEncoder, Array]:
    bits = draw(st.integers(2, 8))
    words = draw(st.integers(1, 3))
    scheme = GroupScheme(name="any", model_dtype="float32", bits=bits, group_size=32 // bits * words)
    rows, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    count = rows * groups * scheme.group_size
    values = draw(st.lists(st.integers(0, (1 << bits) - 1), min_size=count, max_size=count))
    return GroupEncoder(scheme), np.array(values, np.uint32).reshape(rows, -1)


@settings(max_examples=80, deadline=None)
@given(packings())
def test_packing_round_trips_for_every_width(case: tuple[GroupEncoder, Array]) -> None:
    encoder, integers = case
    packed = encoder.pack(integers)
    assert packed.shape == (integers.shape[0], integers.shape[1] // encoder.scheme.elements_per_word)
    np.testing.assert_array_equal(encoder.unpack(packed), integers)


@settings(max_examples=80, deadline=None)
@given(packings())
def test_packing_is_positional_from_the_low_end(case: tuple[GroupEncoder, Array]) -> None:
    encoder, integers = case
    per_word = encoder.scheme.elements_per_word
    for row, words in zip(integers.tolist(), encoder.pack(integers).tolist(), strict=True):
        for number, word in enumerate(words):
            lanes = row[number * per_word : (number + 1) * per_word]
            assert word == sum(value << (lane * encoder.scheme.bits) for lane, value in enumerate(lanes))


def test_large_tables_are_quantized_in_blocks_to_the_same_numbers() -> None:
    random = np.random.default_rng(1)
    rows = (1 << 22) // 32 + 5  # more than a block of rows
    weights = random.standard_normal((rows, 32)).astype(np.float32)
    packed, scales = quantize(weights)
    last_packed, last_scales = quantize(weights[-7:])
    np.testing.assert_array_equal(packed[-7:], last_packed)
    np.testing.assert_array_equal(scales[-7:], last_scales)
