// The functions of cuBLASLt that are called, computed on the CPU: products of halves, column by column, as it is
// documented. What it is not asked for in the form of a product with the first factor transposed, it refuses.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int type; uint64_t rows, columns; int64_t stride; } Layout;
typedef struct { int compute, scale; int32_t transposed_a; } Description;
typedef struct { uint64_t workspace; uint32_t alignments[4]; } Preference;
typedef struct { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; } Proposal;
enum { INVALID = 7, UNSUPPORTED = 15, NEEDED = 4096, MARK = 4711 };
int asked = 0;

int cublasLtCreate(void **handle) { *handle = malloc(1); return 0; }

int cublasLtMatmulDescCreate(Description **made, int compute, int scale) {
  *made = calloc(1, sizeof **made);
  (*made)->compute = compute, (*made)->scale = scale;
  return 0;
}

int cublasLtMatmulDescSetAttribute(Description *of, int attribute, const void *value, size_t size) {
  if (attribute != 3 || size != sizeof of->transposed_a) return INVALID;
  memcpy(&of->transposed_a, value, size);
  return 0;
}

int cublasLtMatrixLayoutCreate(Layout **made, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  if (stride < (int64_t)rows) return INVALID;
  *made = malloc(sizeof **made);
  **made = (Layout){type, rows, columns, stride};
  return 0;
}

int cublasLtMatrixLayoutDestroy(Layout *layout) { free(layout); return 0; }

int cublasLtMatmulPreferenceCreate(Preference **made) { *made = calloc(1, sizeof **made); return 0; }

int cublasLtMatmulPreferenceSetAttribute(Preference *of, int attribute, const void *value, size_t size) {
  if (attribute == 1 && size == sizeof of->workspace) memcpy(&of->workspace, value, size);
  else if (attribute >= 5 && attribute <= 8 && size == sizeof(uint32_t)) memcpy(&of->alignments[attribute - 5], value, size);
  else return INVALID;
  return 0;
}

int cublasLtMatmulPreferenceDestroy(Preference *preference) { free(preference); return 0; }

static int fits(const Description *of, const Layout *a, const Layout *b, const Layout *d) {
  return of->compute == 68 && of->scale == 0 && of->transposed_a == 1 && a->type == 2 && b->type == 2 && (d->type == 2 || d->type == 0) &&
         a->rows == b->rows && a->columns == d->rows && b->columns == d->columns;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, Description *of, Layout *a, Layout *b, Layout *c, Layout *d,
                                   Preference *preference, int wanted, Proposal *proposals, int *found) {
  ++asked;
  *found = 0;
  if (!handle || c != d || wanted != 1 || !fits(of, a, b, d) || preference->workspace < NEEDED) return UNSUPPORTED;
  for (int i = 0; i < 4; ++i)
    if (preference->alignments[i] < 2) return UNSUPPORTED;
  memset(proposals, 0, sizeof *proposals);
  proposals->algorithm[7] = MARK, proposals->workspace = NEEDED;
  *found = 1;
  return 0;
}

int cublasLtMatmul(void *handle, Description *of, const float *alpha, const _Float16 *a, Layout *la, const _Float16 *b,
                   Layout *lb, const float *beta, const void *c, Layout *lc, void *d, Layout *ld,
                   const uint64_t *algorithm, char *workspace, size_t size, void *stream) {
  if (!handle || !fits(of, la, lb, ld) || c != d || lc != ld || *beta || *alpha != 1 || algorithm[7] != MARK || size != NEEDED || stream)
    return INVALID;
  memset(workspace, 1, size);
  for (uint64_t column = 0; column < ld->columns; ++column)
    for (uint64_t row = 0; row < ld->rows; ++row) {
      float sum = 0;
      for (uint64_t k = 0; k < la->rows; ++k) sum += (float)a[row * la->stride + k] * (float)b[column * lb->stride + k];
      if (ld->type) ((_Float16 *)d)[column * ld->stride + row] = (_Float16)sum;
      else ((float *)d)[column * ld->stride + row] = sum;
    }
  return 0;
}
