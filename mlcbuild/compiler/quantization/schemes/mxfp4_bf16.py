"""mxfp4_bf16: matrices in MXFP4, groups of 32; all else, and what is computed, in bfloat16."""

from mlcbuild.compiler.quantization.float4.scheme import Float4Scheme

SCHEME = Float4Scheme(name="mxfp4_bf16", model_dtype="bfloat16", group_size=32, scales="E8M0")
