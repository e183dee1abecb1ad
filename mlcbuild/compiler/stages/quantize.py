"""Quantize: one imported shard becomes one shard of a package's weights.

Reads `shard` (safetensors, Hugging Face names) and `parameters` (parameters.json). Writes `shard_out` (raw bytes) and
`records`: the shard's record in `tensor-cache.json`, with its file called `params_shard_<index>.bin` there. Of stacked
experts one is in memory at a time, of a matrix whose rows are stored apart some rows, and what is stored for all but
their first tensor (scales).

What a quantized checkpoint has as integers stays as it is where the scheme can store the same ones, and is restored and
quantized again where it cannot and that is allowed. The log tells of each. So it does of static scales of activations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from mlcbuild.compiler.models.checkpoints.parameters import Parameter, read_parameters
from mlcbuild.compiler.quantization.scheme import Encoder, QuantizationScheme, StoredTensor
from mlcbuild.compiler.quantization.stored_parts import stored_pieces
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.compiler.weights.tensor import Array
from mlcbuild.compiler.weights.tensor_cache import check_encoding, shard_name, write_shard
from mlcbuild.errors import StageError


def run(
    *,
    shard: Path,
    parameters: Path,
    shard_out: Path,
    records: Path,
    scheme: QuantizationScheme,
    encoder: Callable[[QuantizationScheme], Encoder],
    index: int,
    encode: str = "raw",
    allow_requantize: bool = False,
) -> None:
    """`scheme` and its `encoder` are plug-ins. Raises StageError for a parameter that the scheme cannot store, for
    weights that are not finite, and for integers and floats of a quantized checkpoint of Hugging Face that would be
    quantized again, unless that is allowed."""
    check_encoding(encode)
    source = ImportedShard(shard)
    there = source.descriptions
    listed = read_parameters(parameters)
    present = [
        parameter for parameter in listed.parameters if any(tensor.name in there for tensor in parameter.sources)
    ]
    record = write_shard(
        shard_out,
        data_path=shard_name(index),
        tensors=_quantized(
            source,
            present,
            scheme,
            encoder(scheme),
            only_kept=listed.quantized is not None and not allow_requantize,
        ),
        encode=encode,
    )
    records.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")


def _quantized(
    source: ImportedShard,
    parameters: list[Parameter],
    scheme: QuantizationScheme,
    encoder: Encoder,
    *,
    only_kept: bool,
) -> Iterator[tuple[StoredTensor, Iterable[Array]]]:
    there = source.descriptions
    for parameter in parameters:
        missing = [tensor.name for tensor in parameter.sources if tensor.name not in there]
        if missing:
            raise StageError(f"the shard has only a part of {parameter.name}: it lacks {', '.join(missing)}")
        first, *others = scheme.stored(parameter)
        kept: list[tuple[Array, ...]] = []
        yield first, _first_of_each(source, parameter, scheme, encoder, kept, only_kept=only_kept)
        for place, stored in enumerate(others):
            yield stored, [arrays[place] for arrays in kept]


def _first_of_each(
    source: ImportedShard,
    parameter: Parameter,
    scheme: QuantizationScheme,
    encoder: Encoder,
    kept: list[tuple[Array, ...]],
    *,
    only_kept: bool,
) -> Iterator[Array]:
    """The first array that is stored for each part of a parameter, in pieces; the others are `kept`."""
    for part in parameter.parts:
        for first, *others in stored_pieces(source, part, scheme, encoder, only_kept=only_kept):
            kept.append(tuple(others))
            yield first
