"""nvfp4_bf16: matrices in NVFP4, groups of 16; all else, and what is computed, in bfloat16."""

from mlcbuild.compiler.quantization.float4.scheme import Float4Scheme

SCHEME = Float4Scheme(name="nvfp4_bf16", model_dtype="bfloat16", group_size=16, scales="E4M3")
