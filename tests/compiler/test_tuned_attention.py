"""Attention that measurements give another shape: page tables that fit together, and the numbers of the default."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm.tirx.script.builder as T  # noqa: N812
import tvm_ffi
from tvm import tirx
from tvm.relax.frontend.nn.llm._prefill_kernels import _attention_prefill_cpu, _attention_prefill_ragged_cpu

from mlcbuild.compiler.backends.cpu.kernels import attention_shapes
from mlcbuild.compiler.backends.cpu.schedule import SCHEDULING
from mlcbuild.compiler.kernels.measured_inputs import Pass, paged_prefill_inputs
from mlcbuild.compiler.kernels.scheduling import ChosenShape, apply_rules, shaped_rule_of
from mlcbuild.compiler.models.architecture.attention_rules import NO_RULES, AttentionRules
from mlcbuild.compiler.script_parsing import quick_script_parsing
from mlcbuild.runtime.measuring.arguments import ArgumentSets
from mlcbuild.runtime.measuring.candidate_list import Argument, CandidateList, Content
from tests.compiler.pipeline import CPU_TARGET
from tests.compiler.test_tune_kernel import Bench

TARGET = tvm.target.Target(dict(CPU_TARGET))
_SECONDS = 300.0  # a candidate may take, beside other tests


def _kernel(rule: str, *, rules: AttentionRules = NO_RULES, heads: int = 9) -> tirx.PrimFunc:
    with quick_script_parsing():
        if rule == "cpu.paged_prefill":
            paged = _attention_prefill_cpu(3, heads, 64, "float32", False, {}, sliding_window_size=0)
            return attention_shapes.paged_prefill(paged, rope_scaling={}, rules=rules, row_lanes=8)
        ragged = _attention_prefill_ragged_cpu(3, heads, 64, 64, "float32", {})
        return attention_shapes.ragged_prefill(ragged, rope_scaling={}, rules=rules, row_lanes=8)


@pytest.fixture(scope="module", params=["cpu.paged_prefill", "cpu.ragged_prefill"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    made = Bench(tmp_path_factory.mktemp("bench"), _kernel(request.param))
    assert made.listed.rule == request.param
    return made


@pytest.fixture
def one_processor() -> Iterator[None]:
    """One thread computes: several wait in busy loops for each other where other tests have the processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("one_processor")
def test_candidates_have_the_numbers_of_the_default_and_others_are_wrong(bench: Bench) -> None:
    assert bench.listed.shapes[0] == {"tokens": 0, "keys": 64}
    assert {shape["tokens"] for shape in bench.listed.shapes[1:]} == {16, 32}, "48 and 96 rows fill vectors"
    untuned = bench.library("untuned")
    sizes = list(bench.listed.sizes[:1])
    for number in (1, len(bench.listed.shapes) - 1):
        candidate = bench.library(f"{number}", bench.listed.shapes[number])
        assert candidate.read_bytes() != untuned.read_bytes()
        found = bench.tune(candidate, untuned, sizes=sizes, seconds=_SECONDS)
        assert [each.outcome for each in found] == ["measured"] * len(sizes), found
    nothing = bench.library("nothing", body=lambda: T.evaluate(T.int32(0)))
    assert bench.tune(nothing, untuned, sizes=sizes)[0].outcome == "wrong"


def test_a_cache_of_several_sequences_is_well_formed() -> None:
    inputs = paged_prefill_inputs(_kernel("cpu.paged_prefill"), [Pass(batch=3, context=40, new=5)])
    (sizes,) = inputs.sizes
    arrays = ArgumentSets(inputs.arguments, lambda array: array).arrays(sizes)
    queries, starts, pages, page_starts, numbers, lengths, first, positions = arrays[:8]
    assert queries.shape == (15, 9, 64)
    assert starts.tolist() == [0, 5, 10, 15]
    assert len(pages) == 9
    assert page_starts.tolist() == [0, 3, 6, 9]
    assert sorted(numbers.tolist()) == list(range(9)) != numbers.tolist()
    assert lengths.tolist() == [16, 16, 16]
    assert first.tolist() == [0, 0, 0]
    assert positions.tolist() == [*range(40, 45)] * 3
    assert [array.dtype for array in arrays[1:2] + arrays[3:8]] == [np.int32] * 6
    assert [each.item() for each in arrays[10:]] == [0, 0, 1.0, 10000.0, 0.125]


def test_only_the_rule_that_wrote_a_kernel_writes_it_again() -> None:
    kernel = _kernel("cpu.ragged_prefill", rules=AttentionRules(soft_cap=30.0))
    shape: Mapping[str, int] = {"tokens": 32, "keys": 128}
    rule = shaped_rule_of(kernel, TARGET, SCHEDULING.rules)
    assert rule is attention_shapes.tune_ragged_prefill

    def applied(chosen: ChosenShape | None) -> tirx.PrimFunc:
        return apply_rules(kernel, TARGET, SCHEDULING.rules, chosen)

    assert applied(None) is kernel
    assert applied(ChosenShape(rule="cpu.paged_prefill", shape=shape)) is kernel
    assert applied(ChosenShape(rule="cpu.gemv:2", shape=shape)) is kernel
    other = applied(ChosenShape(rule=rule.name, shape=shape))
    assert not tvm_ffi.structural_equal(other, kernel)
    default = rule.candidates(kernel, TARGET)[0]
    again = apply_rules(other, TARGET, SCHEDULING.rules, ChosenShape(rule=rule.name, shape=default))
    assert tvm_ffi.structural_equal(again, kernel), "what else it was written of is kept"


@pytest.mark.parametrize(("heads", "rules"), [(9, AttentionRules(sinks=True)), (3, NO_RULES)])
def test_attention_without_a_choice_of_tiles_has_no_candidates(
    tmp_path: Path, heads: int, rules: AttentionRules
) -> None:
    listed = Bench(tmp_path, _kernel("cpu.ragged_prefill", rules=rules, heads=heads)).listed
    assert bool(listed.shapes) is (heads == 3), "one query head fills tiles of 32 tokens alone, with blocks to choose"
    assert {shape["tokens"] for shape in listed.shapes} <= {0, 32}


def test_contents_are_written_down_and_read_back() -> None:
    kinds: dict[str, tuple[Any, ...]] = {
        "random": (), "scalar": (0.5,), "filled": ("n",), "steps": (3,), "counted": ("n", 2), "shuffled": (),
    }  # fmt: skip
    arguments = tuple(
        Argument(shape=("n",), dtype="int32", content=Content(kind=kind, parameters=given))
        for kind, given in kinds.items()
    )
    listed = CandidateList(kernel="k", rule="r", shapes=({"a": 1},), arguments=arguments, sizes=({"n": 4},))
    assert CandidateList.read(listed.written()) == listed
    with pytest.raises(ValueError, match="no content of a tensor"):
        Content(kind="steps")
    with pytest.raises(ValueError, match="no content of a tensor"):
        Content(kind="sorted")
