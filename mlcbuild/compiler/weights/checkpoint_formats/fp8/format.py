"""Checkpoints in E4M3 by blocks, as DeepSeek V3 and R1 and the FP8 models of Qwen3 were published, or by matrices."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.weights.checkpoint_format import CheckpointFormat, refuse_other_fields, refused
from mlcbuild.compiler.weights.held_weights import HeldWeights

# Which modules are left as they are, as their tensors show, and how scales were chosen.
_TOLD = ("modules_to_not_convert", "ignored_layers", "scale_fmt")
_LARGEST = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Configuration:
    """`block` (rows, columns) of a matrix have a scale; None for a scale a matrix. `is_static`: what a matrix is
    multiplied by has a static scale."""

    block: tuple[int, int] | None
    is_static: bool = False


def resolve(table: ConfigReader) -> Fp8Configuration:
    """Raises StageError for other floats, for other scales of activations, and for fields that are not known."""
    form = table.string("fmt", default="e4m3")
    if form != "e4m3":
        raise refused(table, "fmt", f'is "{form}"; floats of 8 bits are read as "e4m3"')
    scheme = table.string("activation_scheme", default="dynamic")
    if scheme not in ("dynamic", "static"):
        raise refused(table, "activation_scheme", f'is "{scheme}"; read are "dynamic" and "static"')
    is_static = scheme == "static"
    refuse_other_fields(table, "fmt", "activation_scheme", "weight_block_size", *_TOLD)
    block = table.value("weight_block_size")
    if block is None:
        return Fp8Configuration(block=None, is_static=is_static)
    sizes = block if isinstance(block, list) else []
    if len(sizes) != 2 or not all(type(size) is int and 1 <= size <= _LARGEST for size in sizes):
        raise refused(table, "weight_block_size", f"is {block!r}; it is two numbers, of rows and columns")
    return Fp8Configuration(block=(sizes[0], sizes[1]), is_static=is_static)


def held(configuration: Fp8Configuration) -> HeldWeights:
    return HeldWeights(words="E4M3 with scales", float_bits=8, block=configuration.block)


FORMAT = CheckpointFormat(name="fp8", method="fp8", configuration=Fp8Configuration, resolve=resolve, held=held)
