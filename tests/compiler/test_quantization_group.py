"""Group quantization against its formula, worked out weight by weight, and the packing of integers into words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.compiler.quantization.group import dequantize, pack, quantize, unpack
from mlcbuild.compiler.quantization.scheme import NAMES, GroupQuantization, named
from mlcbuild.errors import StageError
from tests.compiler.tiny_models import Array

INT4 = GroupQuantization(bits=4, group_size=32, storage_dtype="uint32", quantize_embedding=True, quantize_final_fc=True)


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
    packed, scales = quantize(weights, INT4, name="w")
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


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_bits_are_those_of_a_kernel_compiled_by_tvm(dtype: str) -> None:
    import tvm
    from tvm import te, tirx

    rows, columns = 64, 512
    weight = te.placeholder((rows, columns), dtype, name="weight")
    seven = tirx.const(7, dtype)
    member = te.reduce_axis((0, 32), name="member")
    largest = te.compute(
        (rows, columns // 32), lambda i, g: te.max(te.abs(weight[i, g * 32 + member]), axis=member), name="largest"
    )
    scale = te.compute((rows, columns // 32), lambda i, g: largest[i, g] / seven, name="scale")
    integer = te.compute(
        (rows, columns),
        lambda i, j: tirx.min(
            tirx.max(tirx.round(weight[i, j] / scale[i, j // 32] + seven), tirx.const(0, dtype)), tirx.const(14, dtype)
        ).astype("uint32"),
        name="integer",
    )
    function = te.create_prim_func([weight, scale, integer]).with_attr("global_symbol", "main")
    kernel = tvm.compile(tvm.IRModule({"main": function}), target={"kind": "llvm", "mcpu": "x86-64-v3"})
    random = np.random.default_rng(9)
    weights = (random.standard_normal((rows, columns)) * np.exp(random.uniform(-12, 3, (rows, 1)))).astype(dtype)
    weights[5, 32:64] = 0
    expected_scale = tvm.runtime.tensor(np.zeros((rows, columns // 32), dtype))
    expected = tvm.runtime.tensor(np.zeros((rows, columns), "uint32"))
    kernel["main"](tvm.runtime.tensor(weights), expected_scale, expected)
    packed, scales = quantize(weights, INT4, name="w")
    np.testing.assert_array_equal(scales, expected_scale.numpy())
    np.testing.assert_array_equal(unpack(packed, INT4), expected.numpy())


def test_ties_go_to_the_even_integer() -> None:
    weights = np.zeros((1, 32), np.float32)
    weights[0, :4] = [7, 0.5, 1.5, -0.5]  # the scale is 1: 7.5, 8.5 and 6.5 are rounded
    packed, _ = quantize(weights, INT4, name="w")
    assert unpack(packed, INT4)[0, :4].tolist() == [14, 8, 8, 6]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e4, 1e4, width=16), min_size=64, max_size=64),
    st.sampled_from(["float32", "float16"]),
)
def test_what_comes_back_is_within_half_a_step(values: list[float], dtype: str) -> None:
    weights = np.array(values, dtype).reshape(1, 64)
    packed, scales = quantize(weights, INT4, name="w")
    back = dequantize(packed, scales, INT4).astype(np.float64)
    step = np.repeat(scales.astype(np.float64), 32, axis=1)
    # Half a step, and the rounding of the quotient (at most 14) and of the product (at most 7 steps) in the type.
    epsilon = float(np.finfo(dtype).eps)
    bound = step * (0.5 + 32 * epsilon) + float(np.finfo(dtype).smallest_subnormal) * 8
    assert (np.abs(back - weights.astype(np.float64)) <= bound).all()


@st.composite
def packings(draw: st.DrawFn) -> tuple[GroupQuantization, Array]:
    bits = draw(st.integers(2, 8))
    words = draw(st.integers(1, 3))
    group = GroupQuantization(
        bits=bits,
        group_size=32 // bits * words,
        storage_dtype="uint32",
        quantize_embedding=True,
        quantize_final_fc=True,
    )
    rows, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    count = rows * groups * group.group_size
    values = draw(st.lists(st.integers(0, (1 << bits) - 1), min_size=count, max_size=count))
    return group, np.array(values, np.uint32).reshape(rows, -1)


@settings(max_examples=80, deadline=None)
@given(packings())
def test_packing_round_trips_for_every_width(case: tuple[GroupQuantization, Array]) -> None:
    group, integers = case
    packed = pack(integers, group)
    assert packed.shape == (integers.shape[0], integers.shape[1] // group.elements_per_word)
    np.testing.assert_array_equal(unpack(packed, group), integers)


@settings(max_examples=80, deadline=None)
@given(packings())
def test_packing_is_positional_from_the_low_end(case: tuple[GroupQuantization, Array]) -> None:
    group, integers = case
    per_word = group.elements_per_word
    for row, words in zip(integers.tolist(), pack(integers, group).tolist(), strict=True):
        for number, word in enumerate(words):
            lanes = row[number * per_word : (number + 1) * per_word]
            assert word == sum(value << (lane * group.bits) for lane, value in enumerate(lanes))


def test_large_tables_are_quantized_in_blocks_to_the_same_numbers() -> None:
    random = np.random.default_rng(1)
    rows = (1 << 22) // 32 + 5  # more than a block of rows
    weights = random.standard_normal((rows, 32)).astype(np.float32)
    packed, scales = quantize(weights, INT4, name="w")
    last_packed, last_scales = quantize(weights[-7:], INT4, name="w")
    np.testing.assert_array_equal(packed[-7:], last_packed)
    np.testing.assert_array_equal(scales[-7:], last_scales)


def test_groups_that_do_not_divide_are_refused_by_name() -> None:
    with pytest.raises(StageError, match=r"model\.x\.weight has 688 columns, which groups of 32 do not divide"):
        quantize(np.ones((2, 688), np.float32), INT4, name="model.x.weight")


def test_every_scheme_is_found_by_its_name() -> None:
    assert [named(name).name for name in NAMES] == list(NAMES)
    assert {"q0f16", "q0f32", "q4f16_1", "q4f32_1"} <= set(NAMES)


def test_unknown_scheme_is_told_with_a_suggestion() -> None:
    with pytest.raises(StageError, match=r'did you mean "q4f16_1"'):
        named("q4f16_9")
