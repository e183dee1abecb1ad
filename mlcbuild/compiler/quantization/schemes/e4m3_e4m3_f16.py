"""e4m3_e4m3_f16: matrices and activations in E4M3 with one scale each; all else, and the rest of what is computed, in
float16."""

from mlcbuild.compiler.quantization.float8.scheme import ActivationScales, Float8Scheme, WeightScales
from mlcbuild.compiler.quantization.minifloat import E4M3

SCHEME = Float8Scheme(
    name="e4m3_e4m3_f16",
    model_dtype="float16",
    kind="per-tensor-quant",
    format=E4M3,
    weight="q_weight",
    scales=WeightScales(name="q_scale"),
    activations=ActivationScales(static="q_calibration_scale"),
)
