"""fp8_e4m3fn_bf16_block_scale: matrices in E4M3 with a scale for each 128 × 128 of them, as DeepSeek V3 has them, and
activations with one for 128 places; all else, and the rest of what is computed, in bfloat16."""

from mlcbuild.compiler.quantization.float8.scheme import ActivationScales, Float8Scheme, WeightScales
from mlcbuild.compiler.quantization.minifloat import E4M3

SCHEME = Float8Scheme(
    name="fp8_e4m3fn_bf16_block_scale",
    model_dtype="bfloat16",
    kind="block-scale-quant",
    format=E4M3,
    weight="weight",
    scales=WeightScales(name="weight_scale_inv", rows=128, columns=128),
    activations=ActivationScales(group=128),
)
