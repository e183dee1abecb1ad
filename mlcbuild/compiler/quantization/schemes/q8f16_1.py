"""q8f16_1: matrices in groups of 32 integers of eight bits; all else, and what is computed, in float16."""

from mlcbuild.compiler.quantization.group.scheme import GroupScheme

SCHEME = GroupScheme(name="q8f16_1", model_dtype="float16", bits=8, group_size=32)
