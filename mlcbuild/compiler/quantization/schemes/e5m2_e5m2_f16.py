"""e5m2_e5m2_f16: matrices and activations in E5M2 without scales; all else, and the rest of what is computed, in
float16."""

from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme
from mlcbuild.compiler.quantization.minifloat import E5M2

SCHEME = Float8Scheme(
    name="e5m2_e5m2_f16", model_dtype="float16", kind="per-tensor-quant", format=E5M2, weight="q_weight"
)
