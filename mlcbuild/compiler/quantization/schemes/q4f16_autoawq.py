"""q4f16_autoawq: linear layers in AutoAWQ's layout, groups of 128 integers of four bits with zero points; all else, and
what is computed, in float16."""

from mlcbuild.compiler.quantization.awq.scheme import AwqScheme

SCHEME = AwqScheme(name="q4f16_autoawq", model_dtype="float16", group_size=128)
