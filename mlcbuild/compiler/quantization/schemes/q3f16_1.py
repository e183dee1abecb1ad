"""q3f16_1: matrices in groups of 40 integers of three bits; all else, and what is computed, in float16."""

from mlcbuild.compiler.quantization.group.scheme import GroupScheme

SCHEME = GroupScheme(name="q3f16_1", model_dtype="float16", bits=3, group_size=40, partial_groups=True)
