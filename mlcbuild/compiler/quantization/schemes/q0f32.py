"""q0f32: nothing is quantized; all is stored and computed in float32."""

from mlcbuild.compiler.quantization.unquantized.scheme import UnquantizedScheme

SCHEME = UnquantizedScheme(name="q0f32", model_dtype="float32")
