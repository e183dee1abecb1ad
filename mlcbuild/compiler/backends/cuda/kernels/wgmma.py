"""CUDA text of `wgmma`: 64 rows of a matrix of halves or bfloat16 times `vectors` of shared memory, sums in float32."""

from __future__ import annotations

from mlcbuild.compiler.backends.cuda.kernels.instructions import SUFFIX


def name(vectors: int, dtype: str) -> str:
    """Of the functions."""
    return f"mlcbuild_wgmma_{vectors}{SUFFIX[dtype]}"


def text(vectors: int, dtype: str) -> str:
    """Two functions: with 16 places of the matrix in registers, or in shared memory."""
    count = vectors // 2
    sums = ", ".join(f"%{number}" for number in range(count))
    operands = ", ".join(f'"+f"(d[{number}])' for number in range(count))
    a = ", ".join(f"%{count + number}" for number in range(4))
    kind = {"float16": "f16", "bfloat16": "bf16"}[dtype]
    instruction = f"wgmma.mma_async.sync.aligned.m64n{vectors}k16.f32.{kind}.{kind} {{{sums}}}"
    guard = f"WGMMA_{vectors}{SUFFIX[dtype]}"
    return f"""
#ifndef {guard}
#define {guard}
__device__ __forceinline__ void {name(vectors, dtype)}(float* d, const unsigned* a, unsigned long long b) {{
  asm volatile("{instruction}, {{{a}}}, %{count + 4}, 1, 1, 1, 0;"
               : {operands}
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}}
__device__ __forceinline__ void {name(vectors, dtype)}(float* d, unsigned long long a, unsigned long long b) {{
  asm volatile("{instruction}, %{count}, %{count + 1}, 1, 1, 1, 0, 0;"
               : {operands}
               : "l"(a), "l"(b));
}}
#endif
"""
