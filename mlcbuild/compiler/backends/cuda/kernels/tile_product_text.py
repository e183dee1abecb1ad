"""CUDA text of a product by warpgroups, which sm_90a alone has (PTX ISA, `wgmma`): packed integers in registers, or
halves in shared memory, times halves in shared memory. What is said of halves holds for bfloat16.

A matrix that is restored in another way (`Matrix.RESTORED`) is put into shared memory by the kernel, a step while the
one before is multiplied; the text then has the functions of a step.

A warpgroup multiplies tiles of 64 rows of the matrix with all vectors of its block; a step is 64 places of a row.
Copies of the next steps are on their way while one is used (`cp.async`). Of a step, vectors lie in shared memory in the
128-byte swizzle that `wgmma` reads, rows of words as they are in memory, but that two chunks of 16 bytes change places
every four rows, so that the rows that a warp reads together lie in all banks.

Of 16 places of a row, thread 4 g + t of a warp needs 2t, 2t + 1, 2t + 8 and 2t + 9: byte t of two words. A half of
1024 + i has the integer i in its low bits, so that two bitwise operations and a subtraction, all exact, make two halves
of a byte's two integers.

While tensor cores work on one step, the threads restore the next. A wait that leaves no work stands right behind the
last step in every way through the text: only there does the assembler see that sums are read after it.

Blocks of a cluster share the places of a row. Each lays its sums out in its shared memory, and adds up those of all for
its share of the vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import tvm.tirx.script.builder as T  # noqa: N812

from mlcbuild.compiler.backends.cuda import clusters
from mlcbuild.compiler.backends.cuda.kernels import restored_tile_text, wgmma
from mlcbuild.compiler.backends.cuda.kernels.instructions import SUFFIX
from mlcbuild.compiler.kernels.building import Expression

STEP = 64  # places of a row
TILE_ROWS = 64
_ALIGNMENT = 1024  # of a step's vectors, for the swizzle
_PADDING = 4  # floats behind a vector's sums, so that threads that store together meet no bank of shared memory twice


class Matrix(StrEnum):
    """What the matrix is, in the names of functions."""

    PACKED = "packed"
    HALVES = "halves"
    RESTORED = "restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class TileText:
    """The functions `mlcbuild_…` of a tile of `vectors`, in blocks of `warpgroups`, with `stages` on their way."""

    matrix: Matrix
    dtype: str  # float16 or bfloat16
    vectors: int
    warpgroups: int
    stages: int

    @property
    def rows(self) -> int:
        return TILE_ROWS * self.warpgroups

    @property
    def name(self) -> str:
        """How the names of the functions end."""
        suffix = "" if self.dtype == "float16" else f"_{self.dtype}"
        return f"{self.matrix}_{self.vectors}_{self.warpgroups}_{self.stages}{suffix}"

    def function(self, does: str) -> str:
        """The name of the function that does something."""
        return f"mlcbuild_{does}_{self.name}"

    @property
    def _stage_bytes(self) -> int:
        """What a step takes in shared memory: vectors, and halves, or words and two scales a row."""
        rows = self.rows
        matrix = {Matrix.PACKED: rows * STEP // 2 + rows * 4, Matrix.HALVES: rows * STEP * 2, Matrix.RESTORED: 0}
        return -(-(self.vectors * STEP * 2 + matrix[self.matrix]) // _ALIGNMENT) * _ALIGNMENT

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block: the steps on their way, and two that are restored; and later the sums."""
        restored = 2 * self.rows * STEP * 2 if self.matrix is Matrix.RESTORED else 0
        return max(self.stages * self._stage_bytes + restored, self.vectors * (self.rows + _PADDING) * 4) + _ALIGNMENT

    @property
    def text(self) -> str:
        """The functions `mlcbuild_multiply_tile_…` or, of a step, `mlcbuild_copy_vectors_…`, `mlcbuild_keep_word_…`,
        `mlcbuild_multiply_step_…` and `mlcbuild_end_steps_…`; `mlcbuild_lay_sums_out_…` and `mlcbuild_total_…`."""
        values = {
            "NAME": self.name,
            "WGMMA": wgmma.name(self.vectors, self.dtype),
            "TWO_OF": f"mlcbuild_two_of{SUFFIX[self.dtype]}",
            "ONES": {"float16": "0x6400", "bfloat16": "0x4300"}[self.dtype],
            "VECTORS": self.vectors,
            "ROWS": self.rows,
            "THREADS": 128 * self.warpgroups,
            "STAGES": self.stages,
            "STAGE": self._stage_bytes,
            "STRIDE": self.rows + _PADDING,
            "BARRIER": clusters.BARRIER,
        }
        made = {
            Matrix.PACKED: _MULTIPLY_PACKED,
            Matrix.HALVES: _MULTIPLY_HALVES,
            Matrix.RESTORED: restored_tile_text.MULTIPLY,
        }
        text = made[self.matrix] + _ADD_UP
        for key, value in values.items():
            text = text.replace(f"${key}", str(value))
        guard = f"TILE_PRODUCT_{self.name}"
        common = f"{_COMMON}{_TWO_OF[self.dtype]}{wgmma.text(self.vectors, self.dtype)}"
        return f"{common}#ifndef {guard}\n#define {guard}{text}#endif\n"


def call(text: TileText, does: str, *arguments: Expression) -> None:
    """Adds a call of the function that does something."""
    T.evaluate(T.cuda.func_call(text.function(does), *arguments, source_code=text.text))


_COMMON = r"""
#ifndef TILE_PRODUCT
#define TILE_PRODUCT
__device__ __forceinline__ unsigned mlcbuild_aligned(const void* shared) {
  return ((unsigned)__cvta_generic_to_shared(shared) + 1023) & ~1023u;
}
__device__ __forceinline__ void mlcbuild_copy_async_16(unsigned to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(present ? 16 : 0));
}
__device__ __forceinline__ void mlcbuild_copy_async_4(unsigned to, const void* from, bool present) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(present ? 4 : 0));
}
__device__ __forceinline__ uint4 mlcbuild_load_shared_16(unsigned from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from));
  return v;
}
__device__ __forceinline__ unsigned mlcbuild_load_shared_4(unsigned from) {
  unsigned v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from));
  return v;
}
// The row of the matrix that is at a place of the tile. With `half`, eights of rows that are `half` apart take turns.
__device__ __forceinline__ int mlcbuild_row(int place, int half) {
  return half ? (place >> 4 << 3) + (place & 7) + (place >> 3 & 1) * half : place;
}
// Rows of 128 bytes, eight of them 1,024 bytes apart from the next eight, in the 128-byte swizzle.
__device__ __forceinline__ unsigned long long mlcbuild_rows_at(unsigned from) {
  return (from & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
#endif
"""

_TWO_OF = {
    "float16": r"""
#ifndef TWO_OF
#define TWO_OF
// The two integers of a byte, which `selector` takes of a word and of the word four bits on, less an offset, scaled.
__device__ __forceinline__ unsigned mlcbuild_two_of(unsigned word, unsigned selector, unsigned offset, unsigned scale) {
  unsigned v = __byte_perm(word, word >> 4, selector);
  asm("lop3.b32 %0, %0, 0x000f000f, 0x64006400, 0xea;" : "+r"(v));
  asm("sub.f16x2 %0, %0, %1;" : "+r"(v) : "r"(offset));
  asm("mul.f16x2 %0, %0, %1;" : "+r"(v) : "r"(scale));
  return v;
}
#endif
""",
    "bfloat16": r"""
#ifndef TWO_OF_BFLOAT16
#define TWO_OF_BFLOAT16
// As of halves: one of 128 + i has the integer i, below 16, in its low bits.
__device__ __forceinline__ unsigned mlcbuild_two_of_bfloat16(
    unsigned word, unsigned selector, unsigned offset, unsigned scale) {
  unsigned v = __byte_perm(word, word >> 4, selector);
  asm("lop3.b32 %0, %0, 0x000f000f, 0x43004300, 0xea;" : "+r"(v));
  asm("sub.rn.bf16x2 %0, %0, %1;" : "+r"(v) : "r"(offset));
  asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(v) : "r"(scale));
  return v;
}
#endif
""",
}

_MULTIPLY_PACKED = r"""
__device__ __forceinline__ void mlcbuild_multiply_tile_$NAME(
    void* sums, void* shared, const void* vectors, const void* words, const void* scales, int vectors_left,
    int rows_left, int half, int first_step, int steps, int k, int offset) {
  float* d = (float*)sums;
  const int thread = threadIdx.y * 32 + threadIdx.x, lane = threadIdx.x, g = lane >> 2, t = lane & 3;
  const unsigned base = mlcbuild_aligned(shared);
  const int x_row = thread >> 3, w_row = thread >> 1;
  const char* from_x = (const char*)vectors + ((long long)x_row * k + first_step * 64 + (thread & 7) * 8) * 2;
  const char* from_w =
      (const char*)words + ((long long)mlcbuild_row(w_row, half) * k + first_step * 64) / 2 + (thread & 1) * 16;
  const char* from_s = (const char*)scales + ((long long)mlcbuild_row(thread, half) * k + first_step * 64) / 16;
  const unsigned at_x = x_row * 128 + (((thread & 7) ^ (x_row & 7)) << 4);
  const unsigned at_w = $VECTORS * 128 + w_row * 32 + (((thread & 1) ^ (w_row >> 2 & 1)) << 4);
  const unsigned at_s = $VECTORS * 128 + $ROWS * 32 + thread * 4;
  unsigned writing = base, reading = base;
  int copied = 0;
  auto copy = [&]() {
    if (copied < steps) {
#pragma unroll
      for (int i = 0; i < $VECTORS; i += $THREADS / 8)
        mlcbuild_copy_async_16(writing + at_x + i * 128, from_x + (long long)i * k * 2, x_row + i < vectors_left);
#pragma unroll
      for (int i = 0; i < $ROWS; i += $THREADS / 2)
        mlcbuild_copy_async_16(
            writing + at_w + i * 32, from_w + (long long)(half ? i / 2 : i) * k / 2, w_row + i < rows_left);
      if (thread < $ROWS) mlcbuild_copy_async_4(writing + at_s, from_s, thread < rows_left);
      from_x += 128; from_w += 32; from_s += 4; ++copied;
      writing = writing == base + $STAGE * ($STAGES - 1) ? base : writing + $STAGE;
    }
    asm volatile("cp.async.commit_group;");
  };
  const unsigned selector = t * 0x11 + (4 + t) * 0x1100;
  const unsigned less = ($ONES + offset) * 0x10001;
  const int row = (thread >> 5) * 16 + g;
  const unsigned own_words = $VECTORS * 128 + row * 32 + ((row >> 2 & 1) << 4);
  const unsigned own_scales = $VECTORS * 128 + $ROWS * 32 + row * 4;
  auto restore = [&](unsigned* a) {
    const unsigned s0 = mlcbuild_load_shared_4(reading + own_scales);
    const unsigned s1 = mlcbuild_load_shared_4(reading + own_scales + 32);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const uint4 w0 = mlcbuild_load_shared_16(reading + (own_words ^ j << 4));
      const uint4 w1 = mlcbuild_load_shared_16(reading + (own_words ^ j << 4) + 256);
      const unsigned c0 = __byte_perm(s0, 0, j ? 0x3232 : 0x1010), c1 = __byte_perm(s1, 0, j ? 0x3232 : 0x1010);
      a[j * 8 + 0] = $TWO_OF(w0.x, selector, less, c0);
      a[j * 8 + 1] = $TWO_OF(w1.x, selector, less, c1);
      a[j * 8 + 2] = $TWO_OF(w0.y, selector, less, c0);
      a[j * 8 + 3] = $TWO_OF(w1.y, selector, less, c1);
      a[j * 8 + 4] = $TWO_OF(w0.z, selector, less, c0);
      a[j * 8 + 5] = $TWO_OF(w1.z, selector, less, c1);
      a[j * 8 + 6] = $TWO_OF(w0.w, selector, less, c0);
      a[j * 8 + 7] = $TWO_OF(w1.w, selector, less, c1);
    }
  };
  auto multiply = [&](const unsigned* a) {
    const unsigned long long b = mlcbuild_rows_at(reading);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int s = 0; s < 4; ++s) $WGMMA(d, a + 4 * s, b + 2 * s);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    reading = reading == base + $STAGE * ($STAGES - 1) ? base : reading + $STAGE;
  };
  auto next = [&](unsigned* a) {
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    asm volatile("cp.async.wait_group %0;" ::"n"($STAGES - 3) : "memory");
    __syncthreads();
    copy();
    restore(a);
  };
  unsigned even[16], odd[16];
#pragma unroll
  for (int s = 0; s < $STAGES - 1; ++s) copy();
  asm volatile("cp.async.wait_group %0;" ::"n"($STAGES - 2) : "memory");
  __syncthreads();
  restore(even);
#pragma unroll 1
  for (int step = 0; step + 2 < steps; step += 2) {
    multiply(even);
    next(odd);
    multiply(odd);
    next(even);
  }
  if (steps % 2 == 0) {
    multiply(even);
    next(odd);
    multiply(odd);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  } else {
    multiply(even);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
#pragma unroll
  for (int i = 0; i < $VECTORS / 2; ++i) asm volatile("" : "+f"(d[i])::"memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
}
"""

_MULTIPLY_HALVES = r"""
__device__ __forceinline__ void mlcbuild_multiply_tile_$NAME(
    void* sums, void* shared, const void* vectors, const void* matrix, int vectors_left, int rows_left, int half,
    int first_step, int steps, int k) {
  float* d = (float*)sums;
  const int thread = threadIdx.y * 32 + threadIdx.x, row = thread >> 3;
  const unsigned base = mlcbuild_aligned(shared), own_rows = $VECTORS * 128 + (thread >> 7) * 64 * 128;
  const long long place = first_step * 64 + (thread & 7) * 8;
  const char* from_x = (const char*)vectors + ((long long)row * k + place) * 2;
  const char* from_a = (const char*)matrix + ((long long)mlcbuild_row(row, half) * k + place) * 2;
  const unsigned at = row * 128 + (((thread & 7) ^ (row & 7)) << 4);
  unsigned writing = base, reading = base;
  int copied = 0;
  auto copy = [&]() {
    if (copied < steps) {
#pragma unroll
      for (int i = 0; i < $VECTORS; i += $THREADS / 8)
        mlcbuild_copy_async_16(writing + at + i * 128, from_x + (long long)i * k * 2, row + i < vectors_left);
#pragma unroll
      for (int i = 0; i < $ROWS; i += $THREADS / 8)
        mlcbuild_copy_async_16(
            writing + $VECTORS * 128 + at + i * 128, from_a + (long long)(half ? i / 2 : i) * k * 2,
            row + i < rows_left);
      from_x += 128; from_a += 128; ++copied;
      writing = writing == base + $STAGE * ($STAGES - 1) ? base : writing + $STAGE;
    }
    asm volatile("cp.async.commit_group;");
  };
  // All have then ended the step before the last one, whose place the next copy takes.
  auto multiply = [&]() {
    asm volatile("cp.async.wait_group %0;" ::"n"($STAGES - 3) : "memory");
    __syncthreads();
    copy();
    const unsigned long long a = mlcbuild_rows_at(reading + own_rows), b = mlcbuild_rows_at(reading);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int s = 0; s < 4; ++s) $WGMMA(d, a + 2 * s, b + 2 * s);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    reading = reading == base + $STAGE * ($STAGES - 1) ? base : reading + $STAGE;
  };
#pragma unroll
  for (int s = 0; s < $STAGES - 2; ++s) copy();
#pragma unroll 1
  for (int step = 0; step + 1 < steps; ++step) {
    multiply();
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
  }
  multiply();
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < $VECTORS / 2; ++i) asm volatile("" : "+f"(d[i])::"memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
}
"""

_ADD_UP = r"""
// Sums of all threads, [vector][row], for the block, or for all blocks of its cluster.
__device__ __forceinline__ void mlcbuild_lay_sums_out_$NAME(void* sums, void* shared, int cluster) {
  const float* d = (const float*)sums;
  const int thread = threadIdx.y * 32 + threadIdx.x, g = threadIdx.x >> 2, t = threadIdx.x & 3;
  const unsigned to = mlcbuild_aligned(shared) + (t * 2 * $STRIDE + (thread >> 5) * 16 + g) * 4;
#pragma unroll
  for (int i = 0; i < $VECTORS / 2; ++i) {
    const unsigned there = to + ((i / 4 * 8 + i % 2) * $STRIDE + i / 2 % 2 * 8) * 4;
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(there), "f"(d[i]) : "memory");
  }
  if (cluster > 1) {
    $BARRIER
  } else {
    __syncthreads();
  }
}
// Four sums of neighbouring rows of a vector, over the blocks of the cluster.
__device__ __forceinline__ void mlcbuild_total_$NAME(void* totals, void* shared, int vector, int row, int cluster) {
  float* total = (float*)totals;
  const unsigned from = mlcbuild_aligned(shared) + (vector * $STRIDE + row) * 4;
  if (cluster == 1) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(total[0]), "=f"(total[1]), "=f"(total[2]), "=f"(total[3]) : "r"(from));
    return;
  }
  total[0] = total[1] = total[2] = total[3] = 0;
#pragma unroll
  for (int rank = 0; rank < cluster; ++rank) {
    unsigned there;
    float v[4];
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(from), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(there));
#pragma unroll
    for (int i = 0; i < 4; ++i) total[i] += v[i];
  }
}
"""
