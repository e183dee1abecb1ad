"""q0f16: nothing is quantized; all is stored and computed in float16."""

from mlcbuild.compiler.quantization.unquantized.scheme import UnquantizedScheme

SCHEME = UnquantizedScheme(name="q0f16", model_dtype="float16")
