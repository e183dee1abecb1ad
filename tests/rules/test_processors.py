"""The processors that a platform may name, against those that TVM's code generator knows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mlcbuild.rules import processors

_COMPILE = """
import sys
import tvm
from tvm import te
a = te.placeholder((64,), "float16", "a")
b = te.compute((64,), lambda i: (a[i].astype("float32") + 1).astype("float16"))
module = tvm.IRModule({"main": te.create_prim_func([a, b])})
for processor in sys.argv[2:]:
    target = tvm.target.Target({"kind": "llvm", "mtriple": sys.argv[1], "mcpu": processor})
    with target:
        tvm.tirx.build(module, target=target)
"""


def of_tvm(machine: str) -> frozenset[str]:
    import tvm
    from tvm.target import codegen

    target = tvm.target.Target({"kind": "llvm", "mtriple": f"{machine}-linux-gnu"})
    return frozenset(str(name) for name in codegen.llvm_get_cpu_archlist(target)) - {"generic"}


def compiles(machine: str, *processors: str) -> bool:
    """In a process of its own: LLVM ends the process where it cannot."""
    command = [sys.executable, "-c", _COMPILE, f"{machine}-linux-gnu", *processors]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("machine", sorted(processors.PROCESSORS))
def test_every_processor_that_may_be_named_is_one_of_the_code_generators(machine: str) -> None:
    assert processors.PROCESSORS[machine] <= of_tvm(machine)


def test_what_the_code_generator_lists_besides_has_no_64_bit_code() -> None:
    assert of_tvm("aarch64") == processors.PROCESSORS["aarch64"]
    others = of_tvm("x86_64") - processors.PROCESSORS["x86_64"]
    assert {"i686", "pentium4", "athlon-xp"} <= others
    assert not compiles("x86_64", "pentium4")


@pytest.mark.slow
@pytest.mark.parametrize("machine", sorted(processors.PROCESSORS))
def test_code_is_made_for_every_processor_that_may_be_named(machine: str) -> None:
    assert compiles(machine, *sorted(processors.PROCESSORS[machine]))


def test_a_processor_of_another_machine_names_that_machine() -> None:
    assert processors.processor_error("x86_64-linux-gnu", "x86-64-v3") is None
    wrong = processors.processor_error("x86_64-linux-gnu", "cortex-a76")
    assert wrong is not None
    assert "cortex-a76 is a processor of aarch64" in wrong[1][0]


def test_a_processor_spelt_wrong_has_a_suggestion() -> None:
    wrong = processors.processor_error("x86_64-linux-gnu", "x86-64-v33")
    assert wrong is not None
    assert wrong[0] == 'unknown processor "x86-64-v33" for x86_64-linux-gnu'
    assert 'did you mean "x86-64-v3"?' in wrong[1][0]


@pytest.mark.parametrize("triple", ["riscv64-linux-gnu", "x86_64-pc-windows-msvc", "arm64-apple-macosx", ""])
def test_a_host_that_libraries_cannot_be_made_for_is_told(triple: str) -> None:
    wrong = processors.triple_error(triple)
    assert wrong is not None
    assert "known: aarch64-linux-gnu, x86_64-linux-gnu" in wrong[1][0]


def test_features_are_added_or_taken_away() -> None:
    assert processors.feature_error("+avx512vnni") is None
    assert processors.feature_error("-sse4.2") is None
    assert processors.feature_error("avx2") is not None
    assert processors.feature_error("+") is not None
