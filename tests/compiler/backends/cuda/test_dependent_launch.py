"""Kernels launched before the one in front of them has ended: each of their functions waits for it."""

from __future__ import annotations

import pytest

from mlcbuild.compiler.backends.cuda import dependent_launch
from mlcbuild.compiler.backends.cuda.device_functions import DeviceFunction
from mlcbuild.errors import InternalError

DECLARED = 'extern "C" __global__ void {name}(int* x);\n'
DEFINED = (
    'extern "C" __global__ void __launch_bounds__(8) {name}(int* x) {{\n{body}  if (x) {{\n    x[0] = 1;\n  }}\n}}\n'
)
WAIT = "  mlcbuild_wait_for_inputs();\n"


def _function(name: str, *tags: str) -> DeviceFunction:
    return DeviceFunction(
        name=name, argument_types=(("handle", 64, 1),), launch_parameters=("threadIdx.x", *tags), argument_tags=(0,)
    )


def _text(*bodies: str) -> str:
    return "#define HEAD\n" + "".join(
        DECLARED.format(name=f"f{number}") + DEFINED.format(name=f"f{number}", body=body)
        for number, body in enumerate(bodies)
    )


def test_functions_wait_first_unless_they_say_themselves_where() -> None:
    text, _ = dependent_launch.launched_early(_text("", "  x += 1;\n" + WAIT), [_function("f0"), _function("f1")])
    first, second = (text.split(f"{name}(int* x) {{\n")[1] for name in ("f0", "f1"))
    assert first.startswith(WAIT + "  if (x)")
    assert second.startswith("  x += 1;\n" + WAIT + "  if (x)")
    assert text.count(WAIT) == 2


def test_what_is_read_may_change_until_the_wait_so_no_parameter_is_unaliased() -> None:
    given = _text("").replace("int* x", "int* __restrict__ x")
    text, _ = dependent_launch.launched_early(given, [_function("f0")])
    assert "f0(int* x) {" in text


@pytest.mark.parametrize("defined", [True, False])
def test_the_instructions_are_defined_once(defined: bool) -> None:
    given = _text(WAIT)
    if defined:
        given = "__device__ __forceinline__ void mlcbuild_wait_for_inputs() { }\n" + given
    text, _ = dependent_launch.launched_early(given, [_function("f0")])
    assert text.count("__device__ __forceinline__ void mlcbuild_wait_for_inputs()") == 1
    assert text.index("void mlcbuild_wait_for_inputs") < text.index('extern "C"')


def test_the_tag_comes_before_that_of_dynamic_memory_whose_argument_is_the_last() -> None:
    dynamic = "tirx.use_dyn_shared_memory"
    _, functions = dependent_launch.launched_early(_text("", ""), [_function("f0"), _function("f1", dynamic)])
    assert [function.launch_parameters for function in functions] == [
        ("threadIdx.x", dependent_launch.TAG),
        ("threadIdx.x", dependent_launch.TAG, dynamic),
    ]


def test_a_text_of_another_number_of_functions_is_refused() -> None:
    with pytest.raises(InternalError, match="defines 1 functions, not 2"):
        dependent_launch.launched_early(_text(""), [_function("f0"), _function("f1")])


@pytest.mark.parametrize(
    ("architecture", "early"), [("sm_80", False), ("sm_89", False), ("sm_90", True), ("sm_90a", True), ("sm_120", True)]
)
def test_gpus_from_sm_90_on_launch_early(architecture: str, early: bool) -> None:
    assert dependent_launch.begins_early(architecture) is early
