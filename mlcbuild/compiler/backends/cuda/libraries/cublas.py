"""cuBLASLt: NVIDIA's products of matrices. What is declared of it here has not changed from version 12 to 13.

`mlcbuild_cublas_matmul(x, matrix, out, workspace, m, n, k)` computes out[m, n] = x[m, k] · matrix[n, k]ᵀ of halves or
bfloat16, summed in float32 and stored as `out` has it, in the stream that TVM computes in. The caller's `workspace` is
all the memory that cuBLAS takes, so that a call can be recorded in a CUDA graph. Which of its kernels cuBLAS proposes
for sizes is asked once, for the last 64 of them.
"""

from __future__ import annotations

from mlcbuild.compiler.backends.cuda.libraries.cublas_interface import MATMUL, NAME
from mlcbuild.compiler.backends.cuda.libraries.runtime_library import RuntimeLibrary

_SOURCE = r"""
#include <stddef.h>
#include <stdint.h>

/* Of tvm-ffi and DLPack. */
typedef struct {
  void *data;
  struct { int32_t type, id; } device;
  int32_t ndim;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} Tensor;
typedef struct {
  int32_t type_index;
  uint32_t padding;
  union { int64_t integer; Tensor *tensor; } as;
} Value;
extern void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
extern void *TVMFFIEnvGetStream(int32_t device_type, int32_t device_id);
enum { BFLOAT = 4 };

/* Of the C library. */
extern void *dlopen(const char *file, int flags);
extern void *dlsym(void *library, const char *name);
extern int snprintf(char *to, size_t size, const char *format, ...);
enum { NOW = 2 };

/* Of cuBLASLt. */
typedef void *Object;
typedef struct {
  struct { uint64_t data[8]; } algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} Proposal;
enum { REAL_32F = 0, REAL_16F = 2, REAL_16BF = 14, COMPUTE_32F = 68 };
enum { DESCRIPTION_TRANSA = 3, TRANSPOSED = 1 };
enum { PREFERENCE_WORKSPACE = 1, PREFERENCE_ALIGNMENT_A = 5, ALIGNMENTS = 4 };
static struct {
  int (*cublasLtCreate)(Object *);
  int (*cublasLtMatmulDescCreate)(Object *, int compute, int scale);
  int (*cublasLtMatmulDescSetAttribute)(Object, int, const void *, size_t);
  int (*cublasLtMatrixLayoutCreate)(Object *, int type, uint64_t rows, uint64_t columns, int64_t stride);
  int (*cublasLtMatrixLayoutDestroy)(Object);
  int (*cublasLtMatmulPreferenceCreate)(Object *);
  int (*cublasLtMatmulPreferenceSetAttribute)(Object, int, const void *, size_t);
  int (*cublasLtMatmulPreferenceDestroy)(Object);
  int (*cublasLtMatmulAlgoGetHeuristic)(Object, Object, Object, Object, Object, Object, Object, int, Proposal *, int *);
  int (*cublasLtMatmul)(Object, Object, const void *alpha, const void *a, Object, const void *b, Object,
                        const void *beta, const void *c, Object, void *d, Object, const void *algorithm,
                        void *workspace, size_t, void *stream);
} lt;
static const char *const names[] = {
  "cublasLtCreate", "cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute", "cublasLtMatrixLayoutCreate",
  "cublasLtMatrixLayoutDestroy", "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceSetAttribute",
  "cublasLtMatmulPreferenceDestroy", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul",
};
enum { NAMES = sizeof names / sizeof *names };

enum { DEVICES = 64, PLANS = 64 };
typedef struct {
  int32_t device, type, out_type;
  int64_t m, n, k;
  uint32_t alignment;
} Sizes;
typedef struct {
  Sizes sizes;
  Object matrix, x, out;
  Proposal proposal;
} Plan;
static Object handles[DEVICES], description;
static Plan plans[PLANS];
static unsigned planned;
static int loaded, busy;
static char message[256];

static int failed(const char *what, int status) {
  snprintf(message, sizeof message, "cuBLAS: %s answered status %d", what, status);
  TVMFFIErrorSetRaisedFromCStr("RuntimeError", message);
  return -1;
}

#define TRY(call, name) do { int status_ = (call); if (status_) return failed(name, status_); } while (0)

static int load(void) {
  static const char *const files[] = { MLC_FILES };
  void *library = NULL;
  for (size_t i = 0; i < sizeof files / sizeof *files && !library; ++i) library = dlopen(files[i], NOW);
  if (!library) {
    snprintf(message, sizeof message,
             "this model multiplies by cuBLAS, and the loader does not find %s: put its folder into LD_LIBRARY_PATH",
             files[0]);
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", message);
    return -1;
  }
  void **functions = (void **)&lt;
  for (size_t i = 0; i < NAMES; ++i) {
    if (!(functions[i] = dlsym(library, names[i]))) {
      snprintf(message, sizeof message, "the cuBLAS that the loader finds has no %s", names[i]);
      TVMFFIErrorSetRaisedFromCStr("RuntimeError", message);
      return -1;
    }
  }
  int32_t transposed = TRANSPOSED;
  TRY(lt.cublasLtMatmulDescCreate(&description, COMPUTE_32F, REAL_32F), "cublasLtMatmulDescCreate");
  TRY(lt.cublasLtMatmulDescSetAttribute(description, DESCRIPTION_TRANSA, &transposed, sizeof transposed),
      "cublasLtMatmulDescSetAttribute");
  loaded = 1;
  return 0;
}

static int equal(const Sizes *a, const Sizes *b) {
  return a->device == b->device && a->type == b->type && a->out_type == b->out_type && a->m == b->m &&
         a->n == b->n && a->k == b->k && a->alignment == b->alignment;
}

/* cuBLAS counts by columns: the matrix, transposed, times the vectors. */
static int make(Plan *plan, const Sizes *sizes, uint64_t workspace) {
  if (plan->sizes.m) {
    plan->sizes.m = 0;
    lt.cublasLtMatrixLayoutDestroy(plan->matrix);
    lt.cublasLtMatrixLayoutDestroy(plan->x);
    lt.cublasLtMatrixLayoutDestroy(plan->out);
  }
  const char *const layout = "cublasLtMatrixLayoutCreate";
  TRY(lt.cublasLtMatrixLayoutCreate(&plan->matrix, sizes->type, sizes->k, sizes->n, sizes->k), layout);
  TRY(lt.cublasLtMatrixLayoutCreate(&plan->x, sizes->type, sizes->k, sizes->m, sizes->k), layout);
  TRY(lt.cublasLtMatrixLayoutCreate(&plan->out, sizes->out_type, sizes->n, sizes->m, sizes->n), layout);
  Object preference;
  const char *const set = "cublasLtMatmulPreferenceSetAttribute";
  TRY(lt.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  TRY(lt.cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_WORKSPACE, &workspace, sizeof workspace), set);
  for (int i = 0; i < ALIGNMENTS; ++i)
    TRY(lt.cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_ALIGNMENT_A + i, &sizes->alignment,
                                                sizeof sizes->alignment), set);
  int found = 0;
  int status = lt.cublasLtMatmulAlgoGetHeuristic(handles[sizes->device], description, plan->matrix, plan->x, plan->out,
                                                 plan->out, preference, 1, &plan->proposal, &found);
  lt.cublasLtMatmulPreferenceDestroy(preference);
  if (status || !found) return failed("cublasLtMatmulAlgoGetHeuristic", status);
  plan->sizes = *sizes;
  return 0;
}

static int32_t type_of(const Tensor *tensor) {
  return tensor->dtype.bits == 32 ? REAL_32F : tensor->dtype.code == BFLOAT ? REAL_16BF : REAL_16F;
}

static char *address(const Tensor *tensor) { return (char *)tensor->data + tensor->byte_offset; }

static int multiply(const Value *given) {
  const Tensor *x = given[0].as.tensor, *matrix = given[1].as.tensor, *out = given[2].as.tensor;
  const Tensor *workspace = given[3].as.tensor;
  const float one = 1, zero = 0;
  Sizes sizes = { x->device.id, type_of(x), type_of(out), given[4].as.integer, given[5].as.integer,
                  given[6].as.integer, 256 };
  if (sizes.m == 0) return 0;
  if (!loaded && load()) return -1;
  if (sizes.device < 0 || sizes.device >= DEVICES) return failed("a device of that number", sizes.device);
  while (((uintptr_t)address(x) | (uintptr_t)address(matrix) | (uintptr_t)address(out)) % sizes.alignment)
    sizes.alignment /= 2;
  if (!handles[sizes.device]) TRY(lt.cublasLtCreate(&handles[sizes.device]), "cublasLtCreate");
  Plan *plan = NULL;
  for (int i = 0; i < PLANS && !plan; ++i) plan = equal(&plans[i].sizes, &sizes) ? &plans[i] : NULL;
  if (!plan) {
    plan = &plans[planned++ % PLANS];
    if (make(plan, &sizes, workspace->shape[0])) return -1;
  }
  TRY(lt.cublasLtMatmul(handles[sizes.device], description, &one, address(matrix), plan->matrix, address(x), plan->x,
                        &zero, address(out), plan->out, address(out), plan->out, &plan->proposal.algorithm,
                        address(workspace), plan->proposal.workspace,
                        TVMFFIEnvGetStream(x->device.type, x->device.id)), "cublasLtMatmul");
  return 0;
}

__attribute__((visibility("hidden")))
int mlcbuild_cublas_matmul(void *self, const Value *given, int32_t count, Value *result) {
  (void)self, (void)count;
  result->type_index = 0;
  result->as.integer = 0;
  while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE)) { }
  int status = multiply(given);
  __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
  return status;
}
"""

_FILES = ("libcublasLt.so.13", "libcublasLt.so.12")

LIBRARY = RuntimeLibrary(
    name=NAME,
    files=_FILES,
    functions=(MATMUL,),
    source=_SOURCE.replace("MLC_FILES", ", ".join(f'"{name}"' for name in _FILES)),
)
