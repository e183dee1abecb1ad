"""Kernels whose blocks work in clusters, which GPUs have from sm_90 on: the blocks of one read each other's shared
memory.

TIR has no word for a cluster's size. A kernel ends with a call of `LEAVE` and the size, where its blocks wait for each
other, and `declared` gives it the size in its heading.
"""

from __future__ import annotations

import re

LEAVE = "mlcbuild_leave_cluster_of_"
_INSTRUCTIONS = "barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;"
BARRIER = f'asm volatile("{_INSTRUCTIONS}" ::: "memory");'
"""The statement that waits for all threads of a cluster, and has what they wrote be seen."""
_FUNCTION = re.compile(r'^(extern "C" __global__ void __launch_bounds__\(\d+\)) ([^;{}]*\) \{\n.*?^\}\n)', re.M | re.S)
_LEFT = re.compile(rf"{LEAVE}(\d+)\(\);")


def leave(size: int) -> tuple[str, str]:
    """The name and the text of the function that a block of a cluster of `size` blocks along `blockIdx.z` ends with."""
    name = f"{LEAVE}{size}"
    return name, f"__device__ __forceinline__ void {name}() {{ {BARRIER} }}\n"


def declared(text: str) -> str:
    """A kernel's CUDA text, each of whose functions says in what clusters it is launched."""

    def with_size(function: re.Match[str]) -> str:
        left = _LEFT.search(function[2])
        size = "" if left is None else f" __cluster_dims__(1, 1, {left[1]})"
        return f"{function[1]}{size} {function[2]}"

    return _FUNCTION.sub(with_size, text)
