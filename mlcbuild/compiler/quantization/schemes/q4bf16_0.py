"""q4bf16_0: q4bf16_1 with linear layers stored by columns, MLC-LLM's layout KN."""

from mlcbuild.compiler.quantization.group.scheme import GroupScheme

SCHEME = GroupScheme(name="q4bf16_0", model_dtype="bfloat16", bits=4, group_size=32, layout="KN")
