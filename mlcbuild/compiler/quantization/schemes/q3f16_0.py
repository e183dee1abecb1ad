"""q3f16_0: q3f16_1 with linear layers stored by columns, MLC-LLM's layout KN."""

from mlcbuild.compiler.quantization.group.scheme import GroupScheme

SCHEME = GroupScheme(name="q3f16_0", model_dtype="float16", bits=3, group_size=40, layout="KN", partial_groups=True)
