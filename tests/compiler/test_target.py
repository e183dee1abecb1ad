"""Targets say what a library is for, and never mean the machine that builds it."""

from __future__ import annotations

import pytest

from mlcbuild.compiler import target as targets
from mlcbuild.errors import StageError
from tests.compiler.pipeline import CPU_TARGET, CUDA_TARGET

LIMITS = ("max_threads_per_block", "max_shared_memory_per_block", "thread_warp_size")


@pytest.mark.parametrize("processor", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "znver4"])
def test_a_processor_is_taken_as_named(processor: str) -> None:
    target = targets.parse({**CPU_TARGET, "mcpu": processor})
    assert str(target.attrs["mcpu"]) == processor


@pytest.mark.parametrize("name", ["mcpu", "mtriple"])
def test_a_target_that_leaves_something_to_the_host_is_refused(name: str) -> None:
    with pytest.raises(StageError, match=f"the target has no {name}"):
        targets.parse({key: value for key, value in CPU_TARGET.items() if key != name})


@pytest.mark.parametrize("value", ["native", "", "host"])
def test_the_build_machines_own_processor_cannot_be_asked_for(value: str) -> None:
    with pytest.raises(StageError, match=r"the target has .* as mcpu"):
        targets.parse({**CPU_TARGET, "mcpu": value})


def test_a_kind_that_tvm_does_not_know_is_told() -> None:
    with pytest.raises(StageError, match=r'not a target: .*"abacus" is not defined'):
        targets.parse({**CPU_TARGET, "kind": "abacus"})


def test_a_misspelt_processor_is_told_with_the_nearest() -> None:
    with pytest.raises(StageError, match=r'unknown processor "x86-64-v33"\n.*did you mean "x86-64-v3"'):
        targets.parse({**CPU_TARGET, "mcpu": "x86-64-v33"})


def test_an_unknown_option_is_told() -> None:
    with pytest.raises(StageError, match="not a target: Unknown config option 'mcpux'"):
        targets.parse({**CPU_TARGET, "mcpux": "x"})


def test_a_gpu_is_taken_as_described_and_nothing_is_asked_of_this_machine() -> None:
    target = targets.parse(CUDA_TARGET)
    assert (target.kind.name, str(target.attrs["arch"]), str(target.host.attrs["mcpu"])) == (
        "cuda",
        "sm_80",
        "x86-64-v3",
    )
    assert {name: int(target.attrs[name]) for name in LIMITS} == {name: CUDA_TARGET[name] for name in LIMITS}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"host": None}, "the target has no mcpu"),
        ({"host": "cpu"}, "the host of the cuda target is no target"),
        ({"host": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "native"}}, "the host has 'native' as mcpu"),
        ({"host": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "z80"}}, 'unknown processor "z80"'),
    ],
)
def test_a_host_that_is_not_described_in_full_is_refused(change: dict[str, object], told: str) -> None:
    described = {name: value for name, value in {**CUDA_TARGET, **change}.items() if value is not None}
    with pytest.raises(StageError, match=told):
        targets.parse(described)
