"""int8_int8_f16: linear layers and experts as signed bytes, multiplied by signed bytes in int32 (W8A8); all else in
float16."""

from mlcbuild.compiler.quantization.int8.scheme import Int8Scheme

SCHEME = Int8Scheme(name="int8_int8_f16", model_dtype="float16")
