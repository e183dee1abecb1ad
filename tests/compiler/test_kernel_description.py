"""What is said of kernels: short texts for people, all of it for programs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.compiler.kernel_description import KernelDescription, Size
from mlcbuild.compiler.passes.describe_kernels import _operation

KERNEL = "kernel_ed710c27d9837cde1953f77f2d14f30c"
_NAMES = st.text("abcdefgh_.", min_size=1, max_size=80)
_SIZES = st.lists(st.integers(1, 1 << 20) | st.sampled_from("nmk"), max_size=6).map(tuple)


@pytest.mark.parametrize(
    ("functions", "parameters", "shape", "matrix", "text"),
    [
        (("decode",), ("model.layers.*.mlp.down_proj",), (1, 1, 64), (64, 128), "down_proj 64×128 ·×1 decode"),
        (("a", "decode"), ("lm_head",), ("n", 1, 64), (64, 128), "lm_head 64×128 ·×n a+1"),
        (("f",), ("w",), ("n", 4, "m", 64), (64, 128), "w 64×128 ·×4nm f"),
        (("f",), ("m.0.k_proj", "m.0.v_proj"), (1, "n", 64), (), "k_proj+1 n×64 f"),
        (("f",), ("m.*.proj", "n.proj"), (1, 1), (), "proj 1 f"),
        (("f",), (), (), (), "f"),
        ((), (), (), (), ""),
    ],
)
def test_a_text_says_weights_shape_and_functions(
    functions: tuple[str, ...],
    parameters: tuple[str, ...],
    shape: tuple[Size, ...],
    matrix: tuple[Size, ...],
    text: str,
) -> None:
    described = KernelDescription(
        operation="add", functions=functions, parameters=parameters, shape=shape, matrix=matrix
    )
    assert described.text(KERNEL) == " ".join(part for part in ("add", text, "(ed710c27)") if part)


def test_a_function_that_is_called_as_the_operation_is_not_repeated() -> None:
    described = KernelDescription(operation="gather_probs", functions=("gather_probs",), shape=("n", "m"))
    assert described.text(KERNEL) == "gather_probs n×m (ed710c27)"


@given(
    operation=_NAMES,
    functions=st.lists(_NAMES, max_size=4).map(tuple),
    parameters=st.lists(_NAMES, max_size=4).map(tuple),
    shape=_SIZES,
    matrix=st.just(()) | st.tuples(st.integers(1, 1 << 20), st.integers(1, 1 << 20)),
)
def test_a_text_is_short_and_a_description_survives_its_file(
    operation: str,
    functions: tuple[str, ...],
    parameters: tuple[str, ...],
    shape: tuple[Size, ...],
    matrix: tuple[Size, ...],
) -> None:
    described = KernelDescription(
        operation=operation, functions=functions, parameters=parameters, shape=shape, matrix=matrix
    )
    assert len(described.text(KERNEL).removesuffix(" (ed710c27)")) <= 60
    assert KernelDescription.read(json.loads(json.dumps(described.written()))) == described


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("fused_dequantize1_fused_NT_matmul3_cast", "dequantize_matmul"),
        ("fused_split12_silu1_multiply", "split_silu_multiply"),
        ("tir_kv_cache_transpose_append_mla", "kv_cache_transpose_append_mla"),
        ("gather_probs_kernel", "gather_probs"),
        ("conv2d7", "conv2d"),
        ("convert_float16", "convert_float16"),
        ("fused_cast3", "fused_cast"),
    ],
)
def test_an_operation_has_no_numbers_and_no_words_for_the_compiler(name: str, operation: str) -> None:
    assert _operation(name) == operation
