"""E4M3 tensors with `weight_scale_inv` for each block of a matrix, or `weight_scale` for all of it. Both are multiplied
by: inference/kernel.py of deepseek-ai/DeepSeek-V3."""

from __future__ import annotations

from collections.abc import Iterator

from mlcbuild.compiler.weights.checkpoint_formats.fp8.format import FORMAT, Fp8Configuration
from mlcbuild.compiler.weights.float8_tensor import Float8Tensor, float8_tensors
from mlcbuild.compiler.weights.quantized_source import FormatReader
from mlcbuild.compiler.weights.source import WeightSource


def tensors(source: WeightSource, configuration: Fp8Configuration) -> Iterator[Float8Tensor]:
    """What a checkpoint has in E4M3."""
    scale = "weight_scale" if configuration.block is None else "weight_scale_inv"
    return float8_tensors(source, scale=scale, block=configuration.block, of="fp8", is_static=configuration.is_static)


READER = FormatReader(format=FORMAT, tensors=tensors)
