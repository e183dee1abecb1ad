"""fp8_e4m3fn_bf16_channel_scale: matrices in E4M3 with a scale a row, and activations with one a token; all else, and
the rest of what is computed, in bfloat16."""

from mlcbuild.compiler.quantization.float8.scheme import ActivationScales, Float8Scheme, WeightScales
from mlcbuild.compiler.quantization.minifloat import E4M3

SCHEME = Float8Scheme(
    name="fp8_e4m3fn_bf16_channel_scale",
    model_dtype="bfloat16",
    kind="channel-scale-quant",
    format=E4M3,
    weight="weight",
    scales=WeightScales(name="weight_scale", rows=1),
    activations=ActivationScales(),
)
