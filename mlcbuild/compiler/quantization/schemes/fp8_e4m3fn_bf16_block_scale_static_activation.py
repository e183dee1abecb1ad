"""fp8_e4m3fn_bf16_block_scale_static_activation: as fp8_e4m3fn_bf16_block_scale, and linear layers may have stored
scales of activations."""

from mlcbuild.compiler.quantization.float8.scheme import ActivationScales, Float8Scheme, WeightScales
from mlcbuild.compiler.quantization.minifloat import E4M3

SCHEME = Float8Scheme(
    name="fp8_e4m3fn_bf16_block_scale_static_activation",
    model_dtype="bfloat16",
    kind="block-scale-quant",
    format=E4M3,
    weight="weight",
    scales=WeightScales(name="weight_scale_inv", rows=128, columns=128),
    activations=ActivationScales(group=128, static="activation_scale"),
)
