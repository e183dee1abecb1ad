"""Shapes of kernels: each computes the same, the default is what no choice gives, and none but legal ones is built."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels.gemv import GemvShape, schedule_gemv
from mlcbuild.compiler.backends.cpu.kernels.matmul import MatmulShape, schedule_matmul
from mlcbuild.compiler.backends.cpu.kernels.panels import PanelShape, schedule_panels
from mlcbuild.compiler.backends.cpu.schedule import SCHEDULING
from mlcbuild.compiler.backends.cuda.kernels.gemv import schedule_packed_gemv
from mlcbuild.compiler.backends.cuda.kernels.matmul import ProductShape
from mlcbuild.compiler.backends.cuda.kernels.matmul import schedule_matmul as schedule_tiles
from mlcbuild.compiler.kernels.scheduling import ChosenShape, apply_rules, shaped_rule_of
from mlcbuild.compiler.kernels.shapes import ShapedRule
from mlcbuild.compiler.passes.canonical_kernel import canonicalize
from tests.compiler.backends.cpu.test_products import _check_packed
from tests.compiler.backends.cuda.test_products import TARGET as CUDA
from tests.compiler.backends.cuda.test_products import TARGET_90A as CUDA_90A
from tests.compiler.kernel_running import TARGET, packed_product, plain_product

_RULES = SCHEDULING.rules


def _same(one: tirx.PrimFunc | None, other: tirx.PrimFunc | None) -> bool:
    assert one is not None
    assert other is not None
    return canonicalize(one).data == canonicalize(other).data


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(
    "shape", [{"rows": 4, "words_ahead": 0, "chains": 2}, {"rows": 2, "words_ahead": 512, "chains": 2}]
)
def test_rows_that_are_multiplied_together_have_the_same_sums(shape: dict[str, int], residual: bool) -> None:
    func = packed_product(24, 160, 1, residual=residual)
    kernel = schedule_gemv.with_shape(func, TARGET, shape)
    assert kernel is not None
    assert not _same(kernel, schedule_gemv(func, TARGET))
    _check_packed(kernel, 24, 160, 1, "float32", 4, 32, residual)


@pytest.mark.parametrize("chains", [1, 4])
def test_sums_that_are_kept_at_once_make_a_difference_to_floats_alone(chains: int) -> None:
    shape = {"rows": 2, "words_ahead": 512, "chains": chains}
    func = packed_product(24, 160, 1, bits=8)
    kernel = schedule_gemv.with_shape(func, TARGET, shape)
    assert kernel is not None
    assert not _same(kernel, schedule_gemv(func, TARGET))
    _check_packed(kernel, 24, 160, 1, "float32", 8, 32, False)
    assert shape in schedule_gemv.candidates(func, TARGET)
    assert shape not in schedule_gemv.candidates(packed_product(24, 160, 1), TARGET)


@pytest.mark.parametrize("rows", [3, 8, None])
@pytest.mark.parametrize("shape", [{"tile": 16, "vectors": 8, "rows": 1}, {"tile": 4, "vectors": 2, "rows": 4}])
def test_products_that_are_cut_otherwise_are_the_same(shape: dict[str, int], rows: int | None) -> None:
    func = packed_product(32, 96, rows, residual=True)
    kernel = schedule_matmul.with_shape(func, TARGET, shape)
    assert kernel is not None
    assert not _same(kernel, schedule_matmul(func, TARGET))
    _check_packed(kernel, 32, 96, rows or 5, "float32", 4, 32, True)


@pytest.mark.parametrize(
    ("rule", "func", "target"),
    [
        (schedule_gemv, packed_product(24, 160, 1), TARGET),
        (schedule_matmul, packed_product(32, 96, None), TARGET),
        (schedule_panels, packed_product(32, 96, None), TARGET),
        (schedule_packed_gemv, packed_product(64, 1024, 1, dtype="float16", out_dtype="float32"), CUDA),
        (schedule_tiles, packed_product(64, 1024, None, dtype="float16"), CUDA_90A),
        (schedule_tiles, packed_product(64, 1024, 40, dtype="float16"), CUDA_90A),
    ],
    ids=["cpu.gemv", "cpu.matmul", "cpu.panels", "cuda.gemv", "cuda.matmul", "cuda.matmul of 40"],
)
def test_the_default_comes_first_and_all_candidates_are_different(
    rule: ShapedRule[Any, Any], func: tirx.PrimFunc, target: tvm.target.Target
) -> None:
    shapes = rule.candidates(func, target)
    assert len(shapes) > 4
    assert len({tuple(sorted(shape.items())) for shape in shapes}) == len(shapes)
    assert _same(rule.with_shape(func, target, shapes[0]), rule(func, target))
    for shape in shapes[1:4]:
        assert not _same(rule.with_shape(func, target, shape), rule(func, target)), shape


def test_a_choice_for_another_rule_or_of_no_legal_shape_is_no_choice() -> None:
    func = packed_product(24, 160, 1)
    plain = apply_rules(func, TARGET, _RULES)
    for rule, shape in (
        ("cpu.matmul", {"tile": 16, "vectors": 8, "rows": 1}),
        ("cpu.gemv:2", {"rows": 5, "words_ahead": 0, "chains": 1}),
        ("cpu.gemv:2", {"rows": 2}),
    ):
        assert _same(apply_rules(func, TARGET, _RULES, ChosenShape(rule=rule, shape=shape)), plain)
    chosen = ChosenShape(rule="cpu.gemv:2", shape={"rows": 2, "words_ahead": 0, "chains": 2})
    assert not _same(apply_rules(func, TARGET, _RULES, chosen), plain)


def test_a_kernel_without_a_shape_leaves_no_choice() -> None:
    func = packed_product(24, 160, 1)
    assert shaped_rule_of(func, TARGET, _RULES) is schedule_gemv
    assert shaped_rule_of(packed_product(24, 160, None), TARGET, _RULES) is schedule_panels
    assert shaped_rule_of(packed_product(12, 160, None), TARGET, _RULES) is schedule_matmul
    assert shaped_rule_of(func.with_attr("tirx.is_scheduled", True), TARGET, _RULES) is None
    assert shaped_rule_of(packed_product(24, 160, 1, by_columns=True), TARGET, _RULES) is not None


def test_only_warpgroups_have_tiles_to_choose() -> None:
    """Of up to 16 vectors and of more than 128, another tile would change nothing; other GPUs have none."""
    for rows, target in ((None, CUDA), (16, CUDA_90A), (129, CUDA_90A)):
        func = packed_product(64, 1024, rows, dtype="float16")
        assert len(schedule_tiles.candidates(func, target)) == 1, rows
    shapes = schedule_tiles.candidates(packed_product(64, 1024, None, dtype="float16"), CUDA_90A)
    assert {shape["cluster"] for shape in shapes} == {1, 2, 4}, "16 steps for eight blocks are fewer than three each"
    assert {shape["stages"] for shape in shapes if shape["vectors"] == 256} == {3, 4, 5, 6}
    halves = schedule_tiles.candidates(plain_product(64, 1024, None, dtype="float16"), CUDA_90A)
    assert {shape["stages"] for shape in halves if shape["vectors"] == 256} == {3, 4}, "more take more than 227 KiB"


def test_shapes_without_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="rows"):
        GemvShape(rows=0)
    with pytest.raises(ValueError, match="registers"):
        MatmulShape(tile=8, vectors=8, rows=4)
    with pytest.raises(ValueError, match="no shape of a panel"):
        PanelShape(rows=16, vectors=0)
    with pytest.raises(ValueError, match="no shape of a tile"):
        ProductShape(vectors=96)
    with pytest.raises(ValueError, match="no tile"):
        ProductShape(cluster=2)
    with pytest.raises(ValueError, match="has"):
        ShapedRule(
            name="x",
            shape=GemvShape,
            values={"rows": (1,)},
            match=lambda *_: None,
            default=lambda _: GemvShape(),
            build=lambda *_: None,
        )
