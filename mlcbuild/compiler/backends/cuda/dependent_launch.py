"""Kernels that are launched before the one in front of them has ended, and wait for it themselves.

That is CUDA's programmatic dependent launch, which GPUs have from sm_90 on: a kernel is launched as the last blocks of
its predecessor exit, and waits until what these have written is there. Between two kernels of a decoding step there is
otherwise a microsecond or more in which nothing runs. A kernel may only be launched so if all of its device functions
wait; each of them then waits for everything before it, as those before it have waited as well.

Kernels of one row, one vector or one token let their successor be launched when all of their blocks have asked for what
they read, and only add up and store what they have (`instructions.let_next_begin`). What the successor reads beforehand
is then under way as they end. Others do not, and none does so earlier: blocks of several kernels would wait on the
multiprocessors, the next kernel's get what places are left, some multiprocessors many and others none. With that at
the beginning of every kernel a batch of 16 took a quarter longer on an H200, and at the end of products of few vectors
one to two percent.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from mlcbuild.compiler.backends.cuda import architectures
from mlcbuild.compiler.backends.cuda.device_functions import DeviceFunction
from mlcbuild.errors import InternalError

_FIRST_ARCHITECTURE = 90
TAG = "tirx.use_programtic_dependent_launch"  # TVM's spelling
WAIT = "mlcbuild_wait_for_inputs"
WAIT_BODY = '\n#if __CUDA_ARCH__ >= 900\n  asm volatile("griddepcontrol.wait;" ::: "memory");\n#endif\n'
# It lets the compiler load by the non-coherent path, and above the wait, what the kernel in front still writes.
_UNALIASED = " __restrict__"
_DYNAMIC_MEMORY = "tirx.use_dyn_shared_memory"  # the last, where there is one: its argument is
_DEFINITION = re.compile(r'^(extern "C" __global__ [^;{}]*\) \{\n)', re.MULTILINE)


def begins_early(architecture: str) -> bool:
    """Whether kernels for an architecture, and all later ones, are launched so."""
    return architectures.number(architecture) >= _FIRST_ARCHITECTURE


def launched_early(text: str, functions: Sequence[DeviceFunction]) -> tuple[str, tuple[DeviceFunction, ...]]:
    """The CUDA text of a kernel, each of whose functions waits, at its begin if not where it says so itself; and the
    functions, to be launched so. Their parameters lose `__restrict__`: what a kernel reads may be written while it is
    already there.

    Raises InternalError for a text that does not define as many functions.
    """
    first, *definitions = _DEFINITION.split(text)
    if len(definitions) != 2 * len(functions):
        raise InternalError(
            f"the CUDA text of a kernel defines {len(definitions) // 2} functions, not {len(functions)}"
        )
    pieces = [first]
    for heading, body in zip(definitions[::2], definitions[1::2], strict=True):
        pieces += [
            heading.replace(_UNALIASED, ""),
            "" if f"{WAIT}(" in body else f"  {WAIT}();\n",
            body,
        ]
    head = [] if f"void {WAIT}(" in first else [f"__device__ __forceinline__ void {WAIT}() {{ {WAIT_BODY} }}\n"]
    return "".join([*head, *pieces]), tuple(map(_early, functions))


def _early(function: DeviceFunction) -> DeviceFunction:
    given = function.launch_parameters
    place = given.index(_DYNAMIC_MEMORY) if _DYNAMIC_MEMORY in given else len(given)
    return dataclasses.replace(function, launch_parameters=(*given[:place], TAG, *given[place:]))
