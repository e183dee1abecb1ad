"""Tensors in floats of 8 bits with scales, as formats of quantized checkpoints have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.weights.quantized_source import by_module, require_parts, shape_error
from mlcbuild.compiler.weights.scaled_floats import FloatMatrix
from mlcbuild.compiler.weights.source import WeightSource
from mlcbuild.compiler.weights.tensor import FLOAT8, Array, Rows, TensorDescription

_SCALES = "float32 or bfloat16 or float16"
# vLLM's and compressed-tensors' name, that of transformers, and that of older checkpoints.
STATIC = ("input_scale", "activation_scale", "input_activation_scale")


@dataclass(frozen=True, slots=True, kw_only=True)
class Float8Tensor:
    """A `FloatTensor`: the module's `weight` (out, in) in E4M3, times the scale of its block of `block` rows and
    columns, which the tensor called `scale` of the module has. The last blocks may be short. `static` names the tensor
    of the static scale of its activations; "" for none."""

    source: WeightSource
    module: str
    scale: str
    static: str
    description: TensorDescription
    block: tuple[int, int]

    @property
    def parts(self) -> tuple[str, ...]:
        names = ("weight", self.scale, self.static) if self.static else ("weight", self.scale)
        return tuple(f"{self.module}.{name}" for name in names)

    def activation_scales(self) -> Array | None:
        return self.source.read(self.parts[2]).numbers("float32").reshape(1) if self.static else None

    @property
    def groups(self) -> int | None:
        columns, width = self.description.shape[1], self.block[1]
        return None if columns % width else columns // width

    def floats(self, rows: Rows | None) -> FloatMatrix:
        bits = self.source.read(self.parts[0], rows).data
        return FloatMatrix(bits=bits, scales=self._scales(rows))

    def restored(self, rows: Rows | None) -> Array:
        bits = self.source.read(self.parts[0], rows).data
        scales = np.repeat(self._scales(rows), self.block[1], axis=1)[:, : bits.shape[1]]
        return FloatMatrix(bits=bits, scales=np.ascontiguousarray(scales)).restored()

    def _scales(self, rows: Rows | None) -> Array:
        """The scale of each row and block of columns."""
        out, columns = self.description.shape
        height, width = self.block
        found = self.source.read(self.parts[1]).numbers("float32").reshape(-(-out // height), -(-columns // width))
        begin, end = rows or (0, out)
        return np.ascontiguousarray(found[np.arange(begin, end) // height])


def float8_tensors(
    source: WeightSource, *, scale: str, block: tuple[int, int] | None, of: str, is_static: bool
) -> Iterator[Float8Tensor]:
    """What a checkpoint has in E4M3: modules with `weight` and `<scale>`. Scales are for each `block`; None for rows,
    (out, 1), or whole matrices, (1,) or a number. If it `is_static`, each module has a static scale of what it is
    multiplied by, a number by one of the names in `STATIC`.

    Raises StageError for a module that lacks a part, and for parts that do not fit each other.
    """
    needed = {"weight": FLOAT8, scale: _SCALES}
    static_of = by_module(source, STATIC) if is_static else {}
    for module, parts in by_module(source, needed).items():
        if scale not in parts and parts["weight"].dtype != FLOAT8:
            continue
        require_parts(module, parts, needed, of=of)
        weight, scales = parts["weight"], parts[scale]
        sizes = _block(weight.shape, scales.shape, block)
        if sizes is None:
            told = f"(out / {block[0]}, in / {block[1]}), rounded up" if block else "(out, 1), (1,), or a number"
            raise shape_error(module, (weight, scales), of=of, advice=f"of a weight (out, in), {scale} is {told}")
        described = TensorDescription(name=f"{module}.weight", dtype="float32", shape=weight.shape)
        static = _static(module, static_of.get(module, {}), of=of) if is_static else ""
        yield Float8Tensor(source=source, module=module, scale=scale, static=static, description=described, block=sizes)


def _static(module: str, parts: Mapping[str, TensorDescription], *, of: str) -> str:
    """The name of the static scale that a module has. Raises StageError where it has none that is one number."""
    name = next(iter(parts), STATIC[0])
    require_parts(module, parts, {name: _SCALES}, of=of)
    if parts[name].elements != 1:
        raise shape_error(module, (parts[name],), of=of, advice=f"{name} is one number, or (1,)")
    return name


def _block(weight: tuple[int, ...], scales: tuple[int, ...], block: tuple[int, int] | None) -> tuple[int, int] | None:
    """Rows and columns of a scale; None where shapes do not fit."""
    if len(weight) != 2 or not all(weight):
        return None
    out, columns = weight
    if block is not None:
        fits = scales == (-(-out // block[0]), -(-columns // block[1]))
        return block if fits else None
    if scales in ((), (1,), (1, 1)):
        return out, columns
    return (1, columns) if scales == (out, 1) else None
