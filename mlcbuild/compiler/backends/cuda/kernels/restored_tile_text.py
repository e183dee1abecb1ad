"""CUDA text of a step of a product by warpgroups whose matrix the kernel restores (`tile_product_text`).

Threads put numbers of the matrix into shared memory as `wgmma` reads them, in two turns: while tensor cores multiply
one step, the next is restored. Vectors are copied some steps ahead.
"""

from __future__ import annotations

MULTIPLY = r"""
// The vectors of a step are on their way to its place. Asked for in order, and for steps behind the last, too.
__device__ __forceinline__ void mlcbuild_copy_vectors_$NAME(
    void* shared, const void* vectors, int vectors_left, int first_step, int step, int steps, int k) {
  const int thread = threadIdx.y * 32 + threadIdx.x, row = thread >> 3;
  if (step < steps) {
    const char* from = (const char*)vectors + ((long long)row * k + (first_step + step) * 64 + (thread & 7) * 8) * 2;
    const unsigned to =
        mlcbuild_aligned(shared) + step % $STAGES * $STAGE + row * 128 + (((thread & 7) ^ (row & 7)) << 4);
#pragma unroll
    for (int i = 0; i < $VECTORS; i += $THREADS / 8)
      mlcbuild_copy_async_16(to + i * 128, from + (long long)i * k * 2, row + i < vectors_left);
  }
  asm volatile("cp.async.commit_group;");
}
// Eight numbers of a row of the matrix, from place 8 `chunk` of the step on.
__device__ __forceinline__ void mlcbuild_keep_word_$NAME(void* shared, void* word, int step, int row, int chunk) {
  const unsigned* v = (const unsigned*)word;
  const unsigned to = mlcbuild_aligned(shared) + $STAGES * $STAGE + (step & 1) * $ROWS * 128 + row * 128 +
                      ((chunk ^ (row & 7)) << 4);
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}
// All have then restored the step, and ended the one before the last, whose vectors' place is free.
__device__ __forceinline__ void mlcbuild_meet_$NAME() {
  asm volatile("cp.async.wait_group %0;" ::"n"($STAGES - 3) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}
__device__ __forceinline__ void mlcbuild_multiply_step_$NAME(void* sums, void* shared, int step) {
  float* d = (float*)sums;
  const unsigned base = mlcbuild_aligned(shared), own_rows = (threadIdx.y >> 2) * 64 * 128;
  const unsigned long long a = mlcbuild_rows_at(base + $STAGES * $STAGE + (step & 1) * $ROWS * 128 + own_rows);
  const unsigned long long b = mlcbuild_rows_at(base + step % $STAGES * $STAGE);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int s = 0; s < 4; ++s) $WGMMA(d, a + 2 * s, b + 2 * s);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// The step before the last has been multiplied.
__device__ __forceinline__ void mlcbuild_wait_for_last_but_one_$NAME() {
  asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}
__device__ __forceinline__ void mlcbuild_end_steps_$NAME(void* sums) {
  float* d = (float*)sums;
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < $VECTORS / 2; ++i) asm volatile("" : "+f"(d[i])::"memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
}
"""
