"""Tensors of bitsandbytes.

Form: bitsandbytes/functional.py (QuantState.as_dict, dequantize_4bit, int8_vectorwise_dequant).

4 bits: `<module>.weight` has two numbers a byte, the first in its high half, in blocks of the matrix's numbers row
after row. A number is `quant_map[code] * absmax[block]`, computed in float32 and rounded to the type that
`weight.quant_state.bitsandbytes__<kind>` names, a JSON text. Where that has a nested state, `absmax` are bytes, and the
scale of block b is `nested_quant_map[absmax[b]] * nested_absmax[b / nested_blocksize] + nested_offset`.

8 bits: `<module>.weight` (out, in) of int8, and `SCB` (out,), the largest of each row: `code * SCB / 127`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.weights.checkpoint_formats.bitsandbytes.format import FORMAT, BitsAndBytesConfiguration
from mlcbuild.compiler.weights.integers import IntegerMatrix, narrow
from mlcbuild.compiler.weights.quantized_source import FormatReader, QuantizedTensor, by_module, require_parts
from mlcbuild.compiler.weights.source import WeightSource
from mlcbuild.compiler.weights.tensor import STORAGE, Array, Rows, TensorDescription
from mlcbuild.errors import StageError

_OF = "bitsandbytes"
_STATE = ".weight.quant_state.bitsandbytes__"
_WEIGHT, _SCALES, _LAYOUT = "weight", "SCB", "weight_format"
_ROW_LAYOUT = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FourBitTensor:
    """A `QuantizedTensor` of codes that a table has numbers for, which no scheme stores."""

    source: WeightSource
    description: TensorDescription
    parts: tuple[str, ...]
    block: int
    nested_block: int | None
    nested_offset: float

    groups = None

    def restored(self, rows: Rows | None) -> Array:
        name, columns = self.description.name, self.description.shape[-1]
        begin, end = rows or (0, self.description.shape[0])
        first, last = begin * columns, end * columns
        packed = self.source.read(name).data.reshape(-1)[first // 2 : -(-last // 2)]
        codes = np.stack((packed >> 4, packed & 15), axis=-1).reshape(-1)[first % 2 :][: last - first]
        scales = self._scales()[np.arange(first, last) // self.block]
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = self.source.read(f"{name}.quant_map").data[codes] * scales
            return narrow(numbers.reshape(-1, columns), self.description.dtype)

    def _scales(self) -> Array:
        name = self.description.name
        stored = self.source.read(f"{name}.absmax").data
        if self.nested_block is None:
            return stored
        table, nested = (self.source.read(f"{name}.nested_{part}").data for part in ("quant_map", "absmax"))
        of_block = nested[np.arange(stored.size) // self.nested_block]
        scales: Array = table[stored] * of_block + np.float32(self.nested_offset)
        return scales


@dataclass(frozen=True, slots=True, kw_only=True)
class EightBitTensor:
    """A `QuantizedTensor` of integers with one scale a row."""

    source: WeightSource
    module: str
    description: TensorDescription
    parts: tuple[str, ...]

    groups = 1

    def restored(self, rows: Rows | None) -> Array:
        return self.integers(rows).restored()

    def integers(self, rows: Rows | None) -> IntegerMatrix:
        numbers = self.source.read(self.description.name, rows).data
        scales = self.source.read(f"{self.module}.{_SCALES}").data[slice(*rows) if rows else slice(None)]
        return IntegerMatrix(
            codes=(numbers.astype(np.int16) + 128).astype(np.uint8),
            zeros=np.full((len(numbers), 1), 128, np.uint8),
            scales=(scales / np.float32(127)).reshape(-1, 1),
            scale_dtype="float32",
        )


def tensors(source: WeightSource, configuration: BitsAndBytesConfiguration) -> Iterator[QuantizedTensor]:
    """What a checkpoint has of bitsandbytes."""
    if configuration.bits == 8:
        yield from _eight_bits(source)
        return
    for name in source.descriptions:
        module, found, _ = name.partition(_STATE)
        if found:
            yield _four_bits(source, module, name)
    described = {name.partition(_STATE)[0] for name in source.descriptions if _STATE in name}
    for module, parts in by_module(source, (_WEIGHT,)).items():
        if parts[_WEIGHT].dtype == "uint8" and module not in described:
            raise StageError(f"the module {module} is quantized by {_OF}, and lacks {module}{_STATE}nf4 or …fp4")


def _eight_bits(source: WeightSource) -> Iterator[EightBitTensor]:
    for module, parts in by_module(source, (_WEIGHT, _SCALES, _LAYOUT)).items():
        if _SCALES not in parts and (_WEIGHT not in parts or parts[_WEIGHT].dtype != "int8"):
            continue
        require_parts(module, parts, {_WEIGHT: "int8", _SCALES: "float32"}, of=_OF)
        weight = parts[_WEIGHT]
        if len(weight.shape) != 2 or parts[_SCALES].shape != weight.shape[:1]:
            raise StageError(
                f"the module {module} is not as {_OF} has it: weight {list(weight.shape)}, "
                f"SCB {list(parts[_SCALES].shape)}"
            )
        if _LAYOUT in parts and source.read(parts[_LAYOUT].name).data.reshape(-1).tolist() != [_ROW_LAYOUT]:
            raise StageError(
                f"the tensor {parts[_LAYOUT].name} says that {weight.name} is in the layout of one kind of GPU",
                advice=("save the model again with bitsandbytes 0.45 or later",),
            )
        described = TensorDescription(name=weight.name, dtype="float32", shape=weight.shape)
        named = tuple(one.name for one in parts.values())
        yield EightBitTensor(source=source, module=module, description=described, parts=named)


def _four_bits(source: WeightSource, module: str, state_name: str) -> FourBitTensor:
    name = f"{module}.{_WEIGHT}"
    state = _state(source, state_name)
    is_nested = "nested_blocksize" in state
    block, nested = _number(state, "blocksize", state_name), None
    shape, dtype = state.get("shape"), state.get("dtype")
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(size) is int and size > 0 for size in shape):
        raise StageError(f'the tensor {state_name} has the "shape" {shape!r}; that of a matrix is two sizes')
    if dtype not in STORAGE:
        raise StageError(f'the tensor {state_name} has the "dtype" {dtype!r}; known: {", ".join(STORAGE)}')
    elements = shape[0] * shape[1]
    blocks = -(-elements // block)
    needed = {
        name: ("uint8", -(-elements // 2)),
        f"{name}.absmax": ("uint8" if is_nested else "float32", blocks),
        f"{name}.quant_map": ("float32", 16),
    }
    if is_nested:
        nested = _number(state, "nested_blocksize", state_name)
        needed[f"{name}.nested_absmax"] = ("float32", -(-blocks // nested))
        needed[f"{name}.nested_quant_map"] = ("float32", 256)
    for part, (kind, count) in needed.items():
        found = source.descriptions.get(part)
        if found is None:
            raise StageError(f"the module {module} is quantized by {_OF}, and lacks {part}")
        if (found.dtype, found.elements) != (kind, count):
            raise StageError(
                f"the tensor {part} is {found.dtype} {list(found.shape)}, and has to have {count} elements of {kind}"
            )
    offset = state.get("nested_offset", 0.0)
    if isinstance(offset, bool) or not isinstance(offset, int | float):
        raise StageError(f'the tensor {state_name} has the "nested_offset" {offset!r}, which is no number')
    return FourBitTensor(
        source=source,
        description=TensorDescription(name=name, dtype=str(dtype), shape=(shape[0], shape[1])),
        parts=(*needed, state_name),
        block=block,
        nested_block=nested,
        nested_offset=float(offset),
    )


def _state(source: WeightSource, name: str) -> dict[str, object]:
    described = source.descriptions[name]
    document: object = None
    if described.dtype == "uint8":
        try:
            document = json.loads(source.read(name).data.tobytes())
        except (ValueError, RecursionError):
            document = None
    if not isinstance(document, dict):
        raise StageError(f"the tensor {name} holds no JSON object in bytes")
    return document


def _number(state: dict[str, object], field: str, name: str) -> int:
    value = state.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StageError(f'the tensor {name} has the "{field}" {value!r}, which is no size')
    return value


READER = FormatReader(format=FORMAT, tensors=tensors)
