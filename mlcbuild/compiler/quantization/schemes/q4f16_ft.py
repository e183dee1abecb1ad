"""q4f16_ft: linear layers as integers of four bits with one scale a row, all other matrices in groups of 32; what is
computed, in float16."""

from mlcbuild.compiler.quantization.ft.scheme import FtScheme

SCHEME = FtScheme(name="q4f16_ft", model_dtype="float16", bits=4)
