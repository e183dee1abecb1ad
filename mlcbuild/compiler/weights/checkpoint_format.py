"""What a format of quantized checkpoints is: the one interface of every folder in `weights/checkpoint_formats/`.

A format is two modules, found by listing the folder, so that checks before a build load neither NumPy nor tensors:

- `format.py` exports `FORMAT`, a `CheckpointFormat`: which `quantization_config` of a `config.json` is of it, and what
  follows from its fields. It imports neither NumPy nor tvm. Whoever resolves a `config.json` is given it.
- `reader.py` exports `READER`, a `weights.quantized_source.FormatReader`: which tensors of a checkpoint are quantized,
  and what they stand for. ImportConfig and ImportWeights are given it.

What a format makes of the fields is in `parameters.json` (`checkpoints.parameters.QuantizedCheckpoint`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mlcbuild.compiler import json_values
from mlcbuild.compiler.models.checkpoints.parameters import QuantizedCheckpoint
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.weights.held_weights import HeldWeights
from mlcbuild.errors import StageError

Configuration = TypeVar("Configuration")

# Transformers' name of the table, the one that compressed-tensors had at first, and MLX's.
_TABLES = ("quantization_config", "compression_config", "quantization")
_ADVICE = (
    "take the model whose weights are not quantized, or a GGUF file of it",
    "a library alone needs no weights: name a copy of config.json without the field as the `config`",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFormat(Generic[Configuration]):
    """One format. `name` is its folder's.

    A `quantization_config` is of the format if its `quant_method` is `method` and, where the method has several forms,
    its `format` is one of `forms`. `resolve` reads its other fields; it raises StageError naming the field that is
    missing, out of range or not supported. `configuration` is the frozen dataclass that it makes, which
    `compiler.json_values` can write. `held` says of it what the checkpoint holds.
    """

    name: str
    method: str
    configuration: type[Configuration]
    resolve: Callable[[ConfigReader], Configuration]
    held: Callable[[Configuration], HeldWeights]
    forms: tuple[str, ...] = ()


AnyFormat = CheckpointFormat[Any]


def quantized_checkpoint(
    reader: ConfigReader, formats: Iterable[AnyFormat], *, other_methods: Iterable[str] = ()
) -> QuantizedCheckpoint | None:
    """How the weights of a `config.json` are quantized already; None where they are not.

    `other_methods` are those whose tensors are known by their names alone. Raises StageError for a method of no format,
    and for fields that its format refuses.
    """
    for name in _TABLES:
        if reader.document.get(name) in (None, {}):
            continue
        table = reader.table(name)
        form = table.string("format", default="")
        method = table.string("quant_method", default="")
        if name == "quantization_config" and method in other_methods:
            continue
        of_method = [one for one in formats if one.method == method and name != "quantization"]
        for one in of_method:
            if not one.forms or form in one.forms:
                read = ("quant_method", "format") if one.forms else ("quant_method",)
                made = one.resolve(table.without(*read))
                return QuantizedCheckpoint(format=one.name, configuration=json_values.encode(made), held=one.held(made))
        if of_method:
            known = ", ".join(sorted(form for one in of_method for form in one.forms))
            raise table.fail("format", f'is "{form}", which is not read', advice=(f"known: {known}", *_ADVICE))
        raise reader.fail(
            name,
            f"says that the weights are quantized already ({method or form or 'by a method without a name'}), in a way "
            "that is not read",
            advice=(f"known: {', '.join(sorted({one.method for one in formats}))}", *_ADVICE),
        )
    return None


def refuse_other_fields(table: ConfigReader, *known: str) -> None:
    """Raises StageError for a field that may change what the weights stand for: one that is not `known`, and neither
    null, false nor empty."""
    for name, value in table.document.items():
        if name not in known and value not in (None, False, "", [], {}):
            raise table.fail(name, "is not known", advice=(f"known: {', '.join(known)}",))


def refused(table: ConfigReader, name: str, problem: str) -> StageError:
    """The error for a field whose value is not read; the caller raises it."""
    return table.fail(name, problem, advice=_ADVICE)
