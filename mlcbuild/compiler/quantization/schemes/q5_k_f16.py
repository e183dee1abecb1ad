"""q5_k_f16: matrices in blocks of GGUF's type Q5_K; all else, and what is computed, in float16."""

from mlcbuild.compiler.quantization.ggml.scheme import GgmlScheme

SCHEME = GgmlScheme(name="q5_k_f16", model_dtype="float16", block="Q5_K")
