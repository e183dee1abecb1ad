"""q4bf16_1: matrices in groups of 32 integers of four bits; all else, and what is computed, in bfloat16."""

from mlcbuild.compiler.quantization.group.scheme import GroupScheme

SCHEME = GroupScheme(name="q4bf16_1", model_dtype="bfloat16", bits=4, group_size=32)
