"""E4M3 tensors of compressed-tensors: `weight` (out, in) and `weight_scale`, (out, 1), (1,) or that of blocks, which is
multiplied by: compressors/naive_quantized and quantization/lifecycle/forward.py of neuralmagic/compressed-tensors."""

from __future__ import annotations

from collections.abc import Iterator

from mlcbuild.compiler.weights.checkpoint_formats.float_quantized.format import FORMAT, FloatQuantizedConfiguration
from mlcbuild.compiler.weights.float8_tensor import Float8Tensor, float8_tensors
from mlcbuild.compiler.weights.quantized_source import FormatReader
from mlcbuild.compiler.weights.source import WeightSource


def tensors(source: WeightSource, configuration: FloatQuantizedConfiguration) -> Iterator[Float8Tensor]:
    """What a checkpoint has in E4M3."""
    return float8_tensors(
        source,
        scale="weight_scale",
        block=configuration.block,
        of="compressed-tensors",
        is_static=configuration.is_static,
    )


READER = FormatReader(format=FORMAT, tensors=tensors)
