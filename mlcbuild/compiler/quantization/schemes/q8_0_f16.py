"""q8_0_f16: matrices in blocks of GGUF's type Q8_0; all else, and what is computed, in float16."""

from mlcbuild.compiler.quantization.ggml.scheme import GgmlScheme

SCHEME = GgmlScheme(name="q8_0_f16", model_dtype="float16", block="Q8_0")
