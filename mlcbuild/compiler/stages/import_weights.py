"""ImportWeights: a checkpoint of any known format becomes safetensors shards by Hugging Face names.

Reads `source` (a file or directory) and `config` (config.json). Writes the directory `shards` and `manifest`:
`{"version": 1, "shards": [{"file", "tensors"}]}`. Tensors that one parameter fuses (q, k and v; gate and up)
stay together, so that each shard is quantized alone. One tensor is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from mlcbuild.compiler.manifest import write_manifest
from mlcbuild.compiler.models.config import read_document
from mlcbuild.compiler.models.families import parameter_list
from mlcbuild.compiler.models.parameters import Parameter, ParameterList
from mlcbuild.compiler.weights.safetensors_file import write_safetensors
from mlcbuild.compiler.weights.source import open_source
from mlcbuild.compiler.weights.tensor import STORAGE, TensorDescription
from mlcbuild.errors import StageError

SHARD_ELEMENTS = (128 << 20) // 4  # 128 MiB of float32: whatever the source's type, the same shards
_SHOWN = 10


def run(*, source: Path, config: Path, manifest: Path, shards: Path) -> None:
    """Raises StageError for a damaged checkpoint, and for tensors missing, unknown or of another shape,
    listed."""
    document = read_document(config)
    if document.get("quantization_config") is not None:
        raise StageError(
            'config.json: the field "quantization_config" says that the weights are quantized already; '
            "weights are imported in float32, float16 or bfloat16"
        )
    expected = parameter_list(document)
    weights = open_source(source)
    try:
        described = weights.descriptions
        _check(expected, described)
        shards.mkdir(parents=True, exist_ok=True)
        entries: list[dict[str, object]] = []
        for index, group in enumerate(_packed(expected.parameters)):
            file_name = f"shard_{index:05}.safetensors"
            tensors = [described[tensor.name] for parameter in group for tensor in parameter.tensors]
            write_safetensors(shards / file_name, tensors, lambda tensor: weights.read(tensor.name))
            entries.append({"file": file_name, "tensors": [tensor.name for tensor in tensors]})
    finally:
        weights.close()
    write_manifest(manifest, {"shards": entries})


def _packed(parameters: tuple[Parameter, ...]) -> Iterator[list[Parameter]]:
    """Parameters in order, as many to a shard as fit; a larger one has a shard of its own."""
    shard: list[Parameter] = []
    elements = 0
    for parameter in parameters:
        if shard and elements + parameter.elements > SHARD_ELEMENTS:
            yield shard
            shard, elements = [], 0
        shard.append(parameter)
        elements += parameter.elements
    if shard:
        yield shard


def _check(expected: ParameterList, found: Mapping[str, TensorDescription]) -> None:
    wanted = {tensor.name: tensor for parameter in expected.parameters for tensor in parameter.tensors}
    problems = [f"missing: {name} {_shape(wanted[name].shape)}" for name in wanted if name not in found]
    problems += [
        f"of another shape: {name} is {_shape(found[name].shape)} and has to be {_shape(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in found and found[name].shape != tensor.shape
    ]
    problems += [
        f"of a type that is not read: {name} is {found[name].dtype}"
        for name in wanted
        if name in found and found[name].dtype not in STORAGE
    ]
    problems += [
        f"unknown: {name} {_shape(found[name].shape)}"
        for name in sorted(found)
        if name not in wanted and not expected.is_ignored(name)
    ]
    if problems:
        shown = problems[:_SHOWN]
        if len(problems) > _SHOWN:
            shown.append(f"… and {len(problems) - _SHOWN} more")
        count = "1 tensor does" if len(problems) == 1 else f"{len(problems)} tensors do"
        raise StageError(f"the checkpoint does not fit config.json: {count} not match", advice=tuple(shown))


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(str(size) for size in shape) or "scalar"
