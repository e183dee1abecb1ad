// Enough of CUDA C++ for g++ to compile a kernel's text, so that kernels are tested where there is no GPU.
//
// The threads of a block are coroutines of one system thread, which take turns at barriers and where a warp exchanges
// values; blocks run one after another. Device functions of ours are given here anew, in C++: the text's own are asm.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using std::max;
using std::min;
typedef _Float16 half;
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) alignas(n)
typedef unsigned int uint;
typedef unsigned char uchar;
typedef unsigned short ushort;

struct dim3 { int x, y, z; };
struct alignas(2) uchar2 { uchar x, y; };
struct alignas(4) uchar4 { uchar x, y, z, w; };
struct alignas(2) char2 { signed char x, y; };
struct alignas(4) char4 { signed char x, y, z, w; };
struct uint1 { uint x; };
struct uint2 { uint x, y; };
struct alignas(16) uint4 { uint x, y, z, w; };
struct int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct longlong2 { long long x, y; };
struct longlong4 { long long x, y, z, w; };
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct half2 { half x, y; };
struct alignas(8) half4 { half x, y, z, w; };
static inline uchar2 make_uchar2(uchar x, uchar y) { return {x, y}; }
static inline uchar4 make_uchar4(uchar x, uchar y, uchar z, uchar w) { return {x, y, z, w}; }
static inline char2 make_char2(signed char x, signed char y) { return {x, y}; }
static inline char4 make_char4(signed char x, signed char y, signed char z, signed char w) { return {x, y, z, w}; }
static inline uint1 make_uint1(uint x) { return {x}; }
static inline uint2 make_uint2(uint x, uint y) { return {x, y}; }
static inline uint4 make_uint4(uint x, uint y, uint z, uint w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
static inline longlong4 make_longlong4(long long x, long long y, long long z, long long w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline half2 make_half2(half x, half y) { return {x, y}; }
static inline half4 make_half4(half x, half y, half z, half w) { return {x, y, z, w}; }
static inline half __float2half_rn(float x) { return (half)x; }
static inline float __half2float(half x) { return (float)x; }
static inline unsigned __pack_half2(half x, half y) {
  unsigned short a, b;
  memcpy(&a, &x, 2);
  memcpy(&b, &y, 2);
  return (unsigned)b << 16 | a;
}
#define __expf expf
#define __logf logf
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline half hexp(half x) { return (half)expf((float)x); }
static inline half htanh(half x) { return (half)tanhf((float)x); }
static inline half __hmax(half x, half y) { return x > y ? x : y; }

// A bfloat16 as CUDA has it: computed in float, and rounded to nearest, ties to even, after each operation.
struct nv_bfloat16 {
  unsigned short bits;
  nv_bfloat16() = default;
  explicit nv_bfloat16(float x) {
    unsigned b;
    memcpy(&b, &x, 4);
    bits = x != x ? 0x7fff : (b + 0x7fff + (b >> 16 & 1)) >> 16;
  }
  explicit nv_bfloat16(int x) : nv_bfloat16((float)x) {}
  explicit nv_bfloat16(unsigned x) : nv_bfloat16((float)x) {}
  explicit operator float() const {
    unsigned b = (unsigned)bits << 16;
    float x;
    memcpy(&x, &b, 4);
    return x;
  }
  nv_bfloat16 operator-() const { return nv_bfloat16(-(float)*this); }
};
#define BFLOAT16_OPERATOR(type, op) \
  static inline type operator op(nv_bfloat16 x, nv_bfloat16 y) { return type((float)x op (float)y); }
BFLOAT16_OPERATOR(nv_bfloat16, +)
BFLOAT16_OPERATOR(nv_bfloat16, -)
BFLOAT16_OPERATOR(nv_bfloat16, *)
BFLOAT16_OPERATOR(nv_bfloat16, /)
BFLOAT16_OPERATOR(bool, <)
BFLOAT16_OPERATOR(bool, <=)
BFLOAT16_OPERATOR(bool, >)
BFLOAT16_OPERATOR(bool, >=)
struct nv_bfloat162 { nv_bfloat16 x, y; };
struct alignas(8) nv_bfloat164 { nv_bfloat16 x, y, z, w; };
static inline nv_bfloat162 make_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return {x, y}; }
static inline nv_bfloat164 make_nv_bfloat164(nv_bfloat16 x, nv_bfloat16 y, nv_bfloat16 z, nv_bfloat16 w) {
  return {x, y, z, w};
}
static inline nv_bfloat16 __float2bfloat16_rn(float x) { return nv_bfloat16(x); }
static inline float __bfloat162float(nv_bfloat16 x) { return (float)x; }
static inline nv_bfloat16 hexp(nv_bfloat16 x) { return nv_bfloat16(expf((float)x)); }
static inline unsigned __pack_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return (unsigned)y.bits << 16 | x.bits; }

// Goes on with the stack `to`, and keeps in `from` where to come back. `swapcontext` would be a call of the system.
extern "C" __attribute__((visibility("hidden"))) void switch_stack(void** from, void* to);
asm(R"(
.text
.type switch_stack, @function
switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size switch_stack, .-switch_stack
)");

struct Fiber {
  void* stack;
  dim3 thread;
  bool done;
};

static dim3 gridDim, blockDim, blockIdx, threadIdx;
static void* scheduler;
static std::vector<Fiber> fibers;
static int current;

static void give_way() {
  int me = current;
  switch_stack(&fibers[me].stack, scheduler);
  threadIdx = fibers[me].thread;
}

struct Barrier {
  int expected = 0, arrived = 0;
  unsigned generation = 0;
  void wait() {
    unsigned mine = generation;
    if (++arrived == expected) {
      arrived = 0;
      ++generation;
      return;
    }
    while (generation == mine) give_way();
  }
};

struct Warp {
  Barrier barrier;
  unsigned values[32][16];
};

static Barrier block_barrier;
static std::vector<Warp> warps;
static std::vector<char> dynamic_shared;

static inline Warp& my_warp() { return warps[current / 32]; }
static inline void __syncthreads() { block_barrier.wait(); }
static inline void __syncwarp(unsigned = 0xffffffffu) { my_warp().barrier.wait(); }

template <typename T>
static T exchanged(T value, int from) {
  Warp& warp = my_warp();
  memcpy(warp.values[current % 32], &value, sizeof(T));
  warp.barrier.wait();
  T result;
  memcpy(&result, warp.values[from], sizeof(T));
  warp.barrier.wait();
  return result;
}
template <typename T>
static T __shfl_xor_sync(unsigned, T value, int mask, int = 32) { return exchanged(value, (current % 32) ^ mask); }
template <typename T>
static T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  int base = current % 32 / width * width;
  return exchanged(value, base + lane % width);
}
template <typename T>
static T __shfl_down_sync(unsigned, T value, int offset, int width = 32) {
  int lane = current % 32;
  return exchanged(value, lane % width + offset < width ? lane + offset : lane);
}
template <typename T>
static T __shfl_up_sync(unsigned, T value, int offset, int width = 32) {
  int lane = current % 32;
  return exchanged(value, lane % width >= offset ? lane - offset : lane);
}
static inline unsigned __activemask() { return 0xffffffffu; }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  uint64_t both = (uint64_t)b << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= (unsigned)(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
  return result;
}

// Device functions of ours.
static inline void mlcbuild_wait_for_inputs() {}
static inline void mlcbuild_load_once(void* to, const void* source) { memcpy(to, source, 16); }
static inline void mlcbuild_let_next_begin() {}
static inline void mlcbuild_prefetch_bulk(const void*, int) {}
static inline void mlcbuild_mark(const void* source, int count) {  // of test_prefetch_weights
  for (int i = 0; i < count; ++i) ((unsigned char*)source)[i] += 1;
}
static inline void mlcbuild_load16(void* to, const void* source) { memcpy(to, source, 16); }
static inline void mlcbuild_load_shared16(void* to, const void* source) { memcpy(to, source, 16); }
static inline void mlcbuild_load8(void* to, const void* source) { memcpy(to, source, 8); }
static inline void mlcbuild_load4(void* to, const void* source) { memcpy(to, source, 4); }
static inline void mlcbuild_load_constant4(void* to, const void* source) { memcpy(to, source, 4); }
static inline void mlcbuild_load_twice(void* to, const void* source) {
  memcpy(to, source, 2);
  memcpy((char*)to + 2, source, 2);
}
static inline void mlcbuild_load_constant_2_bytes(void* to, const void* source) { memcpy(to, source, 2); }
static inline void mlcbuild_load_constant_4_bytes(void* to, const void* source) { memcpy(to, source, 4); }
static inline void mlcbuild_load_constant_8_bytes(void* to, const void* source) { memcpy(to, source, 8); }
static inline void mlcbuild_load_constant_16_bytes(void* to, const void* source) { memcpy(to, source, 16); }
template <typename T>
static void scale(T* x, unsigned factor) {
  T by[2];
  memcpy(by, &factor, 4);
  for (int i = 0; i < 8; ++i) x[i] = T((float)x[i] * (float)by[i % 2]);
}
static inline void mlcbuild_scale(void* registers, unsigned factor) { scale((half*)registers, factor); }
static inline void mlcbuild_scale_bfloat16(void* registers, unsigned factor) { scale((nv_bfloat16*)registers, factor); }
static inline void mlcbuild_join(void* to, unsigned short low, unsigned short high) {
  *(unsigned*)to = (unsigned)high << 16 | low;
}
static inline void mlcbuild_pack(void* to, float low, float high) {
  ((half*)to)[0] = (half)low;
  ((half*)to)[1] = (half)high;
}
static inline void mlcbuild_pack_bfloat16(void* to, float low, float high) {
  ((nv_bfloat16*)to)[0] = nv_bfloat16(low);
  ((nv_bfloat16*)to)[1] = nv_bfloat16(high);
}
static inline void mlcbuild_pair_with_fourth(void* registers) {
  unsigned* x = (unsigned*)registers;
  unsigned a = x[0], b = x[1], c = x[2], d = x[3];
  x[0] = __byte_perm(a, c, 0x5410);
  x[1] = __byte_perm(a, c, 0x7632);
  x[2] = __byte_perm(b, d, 0x5410);
  x[3] = __byte_perm(b, d, 0x7632);
}
template <typename T>
static void unpack_int4(T* x, unsigned word, int offset) {
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = T((int)(word >> 4 * i & 15) - offset);
    x[2 * i + 1] = T((int)(word >> (4 * i + 16) & 15) - offset);
  }
}
static inline void mlcbuild_unpack_int4_less_7(void* to, unsigned word) { unpack_int4((half*)to, word, 7); }
static inline void mlcbuild_unpack_int4_less_8(void* to, unsigned word) { unpack_int4((half*)to, word, 8); }
static inline void mlcbuild_unpack_int4_bfloat16_less_7(void* to, unsigned word) {
  unpack_int4((nv_bfloat16*)to, word, 7);
}
static inline void mlcbuild_unpack_int4_bfloat16_less_8(void* to, unsigned word) {
  unpack_int4((nv_bfloat16*)to, word, 8);
}
template <typename T>
static void multiply_accumulate(void* sums, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                unsigned b1) {
  Warp& warp = my_warp();
  int lane = current % 32, g = lane / 4, t = lane % 4;
  unsigned given[6] = {a0, a1, a2, a3, b0, b1};
  memcpy(warp.values[lane], given, sizeof(given));
  warp.barrier.wait();
  auto at = [&](int row, int k, bool of_a) {  // an element of a (row, k), or of b (k, column `row`)
    const unsigned* has = warp.values[(of_a ? row % 8 : row) * 4 + k % 8 / 2];
    T pair[2];
    memcpy(pair, &has[of_a ? row / 8 + k / 8 * 2 : 4 + k / 8], 4);
    return (float)pair[k % 2];
  };
  float* d = (float*)sums;
  for (int i = 0; i < 4; ++i) {
    float total = 0;
    for (int k = 0; k < 16; ++k) total += at(g + i / 2 * 8, k, true) * at(2 * t + i % 2, k, false);
    d[i] += total;
  }
  warp.barrier.wait();
}
static void mlcbuild_multiply_accumulate(void* sums, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                         unsigned b1) {
  multiply_accumulate<half>(sums, a0, a1, a2, a3, b0, b1);
}
static void mlcbuild_multiply_accumulate_bfloat16(void* sums, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                  unsigned b0, unsigned b1) {
  multiply_accumulate<nv_bfloat16>(sums, a0, a1, a2, a3, b0, b1);
}

// A block of a cluster computes what the others would, too, and so finds all sums in its own memory.
template <typename T, typename Weight>
static void multiply_tile(int count, void* sums, const void* vectors, int vectors_left, int rows_left, int half_apart,
                          int k, Weight weight) {
  int thread = threadIdx.y * 32 + threadIdx.x, g = threadIdx.x / 4, t = threadIdx.x % 4;
  for (int i = 0; i < count / 2; ++i) {
    int vector = i / 4 * 8 + t * 2 + i % 2, row = thread / 32 * 16 + g + i / 2 % 2 * 8;
    if (vector >= vectors_left || row >= rows_left) continue;
    if (half_apart) row = row / 16 * 8 + row % 8 + row / 8 % 2 * half_apart;
    float total = 0;
    for (int j = 0; j < k; ++j) total += (float)weight(row * k + j) * (float)((const T*)vectors)[(long)vector * k + j];
    ((float*)sums)[i] += total;
  }
}
static void lay_sums_out(int count, const void* sums, void* shared, int stride) {
  int thread = threadIdx.y * 32 + threadIdx.x, g = threadIdx.x / 4, t = threadIdx.x % 4;
  for (int i = 0; i < count / 2; ++i)
    ((float*)shared)[(i / 4 * 8 + t * 2 + i % 2) * stride + thread / 32 * 16 + g + i / 2 % 2 * 8] =
        ((const float*)sums)[i];
  __syncthreads();
}
// Of a matrix that is restored step by step: vectors of `stages` steps, 64 places each, then two steps of 128 rows.
static void copy_vectors(int count, int stages, void* shared, const void* vectors, int vectors_left, int first_step,
                         int step, int steps, int k) {
  if (step >= steps) return;
  int thread = threadIdx.y * 32 + threadIdx.x;
  for (int row = thread / 8; row < count; row += 32) {
    char* to = (char*)shared + step % stages * count * 128 + row * 128 + thread % 8 * 16;
    if (row < vectors_left)
      memcpy(to, (const char*)vectors + ((long)row * k + (first_step + step) * 64 + thread % 8 * 8) * 2, 16);
    else
      memset(to, 0, 16);
  }
}
template <typename T>
static void multiply_step(int count, int stages, void* sums, void* shared, int step) {
  int thread = threadIdx.y * 32 + threadIdx.x, g = threadIdx.x / 4, t = threadIdx.x % 4;
  const T* vectors = (const T*)((char*)shared + step % stages * count * 128);
  const T* rows = (const T*)((char*)shared + stages * count * 128 + step % 2 * 128 * 128);
  for (int i = 0; i < count / 2; ++i) {
    int vector = i / 4 * 8 + t * 2 + i % 2, row = thread / 32 * 16 + g + i / 2 % 2 * 8;
    float total = 0;
    for (int j = 0; j < 64; ++j) total += (float)rows[row * 64 + j] * (float)vectors[vector * 64 + j];
    ((float*)sums)[i] += total;
  }
}
#define EMULATED_SUMS(count, shape)                                                                      \
  static void mlcbuild_lay_sums_out_##shape(void* sums, void* shared, int) {                             \
    lay_sums_out(count, sums, shared, 132);                                                              \
  }                                                                                                      \
  static void mlcbuild_total_##shape(void* totals, void* shared, int vector, int row, int) {             \
    memcpy(totals, (const float*)shared + vector * 132 + row, 16);                                       \
  }
#define EMULATED_TILE_OF(T, suffix, count, stages)                                                       \
  static void mlcbuild_multiply_tile_packed_##count##_2_##stages##suffix(                                \
      void* sums, void*, const void* vectors, const void* words, const void* scales, int vectors_left,   \
      int rows_left, int half_apart, int, int, int k, int offset) {                                      \
    multiply_tile<T>(count, sums, vectors, vectors_left, rows_left, half_apart, k, [&](int place) {      \
      T whole = T((int)(((const unsigned*)words)[place / 8] >> place % 8 * 4 & 15) - offset);            \
      return T((float)whole * (float)((const T*)scales)[place / 32]);                                    \
    });                                                                                                  \
  }                                                                                                      \
  static void mlcbuild_multiply_tile_halves_##count##_2_##stages##suffix(                                \
      void* sums, void*, const void* vectors, const void* matrix, int vectors_left, int rows_left,       \
      int half_apart, int, int, int k) {                                                                 \
    multiply_tile<T>(count, sums, vectors, vectors_left, rows_left, half_apart, k,                       \
                     [&](int place) { return ((const T*)matrix)[place]; });                              \
  }                                                                                                      \
  static void mlcbuild_copy_vectors_restored_##count##_2_##stages##suffix(                               \
      void* shared, const void* vectors, int vectors_left, int first_step, int step, int steps, int k) { \
    copy_vectors(count, stages, shared, vectors, vectors_left, first_step, step, steps, k);              \
  }                                                                                                      \
  static void mlcbuild_keep_word_restored_##count##_2_##stages##suffix(void* shared, void* word,         \
                                                                       int step, int row, int chunk) {   \
    memcpy((char*)shared + stages * count * 128 + step % 2 * 128 * 128 + row * 128 + chunk * 16, word, 16); \
  }                                                                                                      \
  static void mlcbuild_meet_restored_##count##_2_##stages##suffix() { __syncthreads(); }                 \
  static void mlcbuild_multiply_step_restored_##count##_2_##stages##suffix(void* sums, void* shared,     \
                                                                           int step) {                   \
    multiply_step<T>(count, stages, sums, shared, step);                                                 \
  }                                                                                                      \
  static void mlcbuild_wait_for_last_but_one_restored_##count##_2_##stages##suffix() {}                  \
  static void mlcbuild_end_steps_restored_##count##_2_##stages##suffix(void*) { __syncthreads(); }       \
  EMULATED_SUMS(count, packed_##count##_2_##stages##suffix)                                              \
  EMULATED_SUMS(count, halves_##count##_2_##stages##suffix)                                              \
  EMULATED_SUMS(count, restored_##count##_2_##stages##suffix)
#define EMULATED_TILE(count, stages)          \
  EMULATED_TILE_OF(half, , count, stages)     \
  EMULATED_TILE_OF(nv_bfloat16, _bfloat16, count, stages)
EMULATED_TILE(64, 4)
EMULATED_TILE(128, 3)
EMULATED_TILE(128, 4)
EMULATED_TILE(256, 4)
static void mlcbuild_leave_cluster_of_2() {}
static void mlcbuild_leave_cluster_of_4() {}
static void mlcbuild_leave_cluster_of_8() {}

static void (*body)();
static void run_fiber() {
  threadIdx = fibers[current].thread;
  body();
  fibers[current].done = true;
  give_way();
}

static void run_blocks(dim3 grid, dim3 block, size_t shared, void (*function)()) {
  gridDim = grid;
  blockDim = block;
  body = function;
  int count = block.x * block.y * block.z;
  const size_t stack = 1 << 16;
  std::vector<char> stacks(stack * count);
  dynamic_shared.assign(shared + 16, 0);
  for (int b = 0; b < grid.x * grid.y * grid.z; ++b) {
    blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
    block_barrier = Barrier();
    block_barrier.expected = count;
    warps.assign((count + 31) / 32, Warp());
    for (size_t w = 0; w < warps.size(); ++w) warps[w].barrier.expected = min(32, count - (int)w * 32);
    fibers.assign(count, Fiber());
    for (int i = 0; i < count; ++i) {
      fibers[i].thread = {i % block.x, i / block.x % block.y, i / block.x / block.y};
      fibers[i].done = false;
      // What `switch_stack` takes from a stack: six registers, then where to go on.
      uintptr_t top = (uintptr_t)&stacks[stack * (i + 1)] & ~(uintptr_t)15;
      void** kept = (void**)(top - 16) - 6;
      std::fill(kept, kept + 6, nullptr);
      kept[6] = (void*)run_fiber;
      fibers[i].stack = kept;
    }
    int left = count;
    while (left) {
      left = 0;
      for (int i = 0; i < count; ++i) {
        if (fibers[i].done) continue;
        current = i;
        threadIdx = fibers[i].thread;
        switch_stack(&scheduler, fibers[i].stack);
        if (!fibers[i].done) ++left;
      }
    }
  }
}
