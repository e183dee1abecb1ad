"""A rule whose default or sizes change has another version, since what was measured cannot be compared any more.

Where this fails: give the rule the next version, in `ShapedRule.version` and `tuning/rule_versions.py`, and write what
it is now into PINNED. Of the records that come along (`tuning/database`), those stay that were measured beside what has
not changed: give them the new word, and take the others away.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import tvm

from mlcbuild.compiler.backends.cpu.schedule import SCHEDULING as ON_CPUS
from mlcbuild.compiler.backends.cuda.kernels import tile_product
from mlcbuild.compiler.backends.cuda.schedule import SCHEDULING as ON_GPUS
from mlcbuild.compiler.kernels.scheduling import Scheduling, shaped_rule_of
from mlcbuild.compiler.kernels.shapes import ShapedRule, Written
from mlcbuild.tuning.rule_versions import VERSIONS, is_current
from tests.compiler.kernel_running import packed_product
from tests.compiler.pipeline import CPU_TARGET

GPU_TARGET = {"kind": "cuda", "arch": "sm_90a", "max_num_threads": 1024, "thread_warp_size": 32}
MATRICES = ((576, 1536), (2560, 2048), (4096, 4096), (4096, 14336), (28672, 4096))
RULES = {rule.name: rule for rule in (*ON_CPUS.rules, *ON_GPUS.rules) if isinstance(rule, ShapedRule)}


def _default(rule: ShapedRule[Any, Any], n: int, k: int, rows: int | None) -> tuple[int, ...]:
    on_cpus = rule in ON_CPUS.rules
    func = packed_product(n, k, rows, dtype="float32" if on_cpus else "float16")
    target = tvm.target.Target(dict(CPU_TARGET) if on_cpus else GPU_TARGET)
    with target:
        matched = rule.match(func, target)
    assert matched is not None
    return tuple(dataclasses.asdict(rule.default(matched)).values())


def _tiles(n: int, k: int, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The tiles by which the sizes choose."""
    found = [next(tile for most, tile in tile_product.shapes(n, k) if most is None or size <= most) for size in sizes]
    return tuple(dataclasses.astuple(tile) for tile in found)


def _measured_beside(name: str) -> object:
    rule = RULES[name]
    if name.endswith(".gemv"):
        return [_default(rule, n, k, 1) for n, k in MATRICES]
    if name in ("cpu.matmul", "cpu.panels"):
        return rule.sizes, [_default(rule, n, k, None) for n, k in MATRICES]
    if name == "cuda.matmul":
        return rule.sizes, [_tiles(n, k, rule.sizes) for n, k in MATRICES]
    return dataclasses.astuple(rule.default(Written(func=packed_product(8, 32, 1), given={})))


PINNED: dict[str, object] = {
    "cpu.gemv:2": [(1, 2048, 2), (1, 2048, 2), (1, 2048, 2), (4, 4096, 2), (1, 2048, 2)],
    "cpu.matmul:2": ((4, 32, 128), [(8, 4, 2)] * 5),
    "cpu.panels": ((4, 32, 128), [(16, 6, 1024)] * 5),
    "cpu.paged_prefill": (0, 64),
    "cpu.ragged_prefill": (0, 64),
    "cuda.gemv:2": [(6, 1, 1), (8, 1, 1), (8, 1, 1), (16, 1, 1), (4, 1, 1)],
    "cuda.matmul:3": (
        (32, 64, 128),
        [
            ((64, 4, 1), (64, 4, 1), (64, 4, 1)),
            ((64, 4, 2), (64, 4, 2), (64, 4, 2)),
            ((64, 4, 4), (64, 4, 4), (64, 4, 2)),
            ((64, 4, 8), (64, 4, 8), (64, 4, 2)),
            ((64, 4, 1), (64, 4, 1), (128, 4, 1)),
        ],
    ),
    "cuda.paged_decode:2": (2, 396, 32, 64, 256),
}

# Who schedules what. A kernel that another rule takes over leaves records behind, which say nothing of that rule.
SCHEDULED_BY: dict[str, dict[str, str]] = {
    "x86-64": {"one": "cpu.gemv:2", "several": "cpu.matmul:2", "odd": "cpu.matmul:2", "columns": "cpu.matmul:2"},
    "x86-64-v3": {"one": "cpu.gemv:2", "several": "cpu.panels", "odd": "cpu.matmul:2", "columns": "cpu.matmul:2"},
    "x86-64-v4": {"one": "cpu.gemv:2", "several": "cpu.panels", "odd": "cpu.matmul:2", "columns": "cpu.matmul:2"},
    "cuda": {"one": "cuda.gemv:2", "several": "cuda.matmul:3"},
}
KERNELS: dict[str, dict[str, Any]] = {
    "one": {"n": 576, "k": 1536, "rows": 1},
    "several": {"n": 576, "k": 1536, "rows": None},
    "odd": {"n": 580, "k": 1536, "rows": None},  # rows that fill no registers
    "columns": {"n": 576, "k": 1536, "rows": None, "by_columns": True},
}


def test_the_versions_that_builds_know_are_those_of_the_rules() -> None:
    assert {name: rule.version for name, rule in RULES.items() if rule.version != 1} == VERSIONS
    assert all(is_current(rule.word) for rule in RULES.values())


@pytest.mark.parametrize("name", RULES)
def test_another_default_or_other_sizes_are_another_version(name: str) -> None:
    assert _measured_beside(name) == PINNED[RULES[name].word]


@pytest.mark.parametrize("processor", SCHEDULED_BY)
def test_a_rule_that_takes_kernels_over_leaves_another_version_of_theirs(processor: str) -> None:
    """Where this fails: the rule that lost the kernels has the next version."""
    on_cpus = processor != "cuda"
    target = tvm.target.Target(dict(CPU_TARGET) | {"mcpu": processor} if on_cpus else GPU_TARGET)
    scheduling: Scheduling = ON_CPUS if on_cpus else ON_GPUS
    found = {}
    for name in SCHEDULED_BY[processor]:
        func = packed_product(**KERNELS[name], dtype="float32" if on_cpus else "float16")
        with target:
            rule = shaped_rule_of(func, target, scheduling.rules)
        found[name] = rule.word if rule else ""
    assert found == SCHEDULED_BY[processor]
