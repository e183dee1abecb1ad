"""q0bf16: nothing is quantized; all is stored and computed in bfloat16."""

from mlcbuild.compiler.quantization.unquantized.scheme import UnquantizedScheme

SCHEME = UnquantizedScheme(name="q0bf16", model_dtype="bfloat16")
