"""ImportWeights: a checkpoint of any known format becomes safetensors shards by Hugging Face names.

Reads `source` (a file or directory) and `parameters` (parameters.json). Writes the directory `shards` and `manifest`:
`{"version": 1, "shards": [{"file", "tensors"}]}`. Tensors that one parameter is made of (q, k and v; gate and up), and
parameters that are made of one tensor, stay together, so that each shard is quantized alone. One tensor is in memory at
a time. Integers of a checkpoint that is quantized are kept (`weights.imported_shard`); the readers of such checkpoints
are given as plug-ins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from mlcbuild.compiler.manifest import write_manifest
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, read_parameters
from mlcbuild.compiler.weights.checkpoint import Checkpoint, sources_of
from mlcbuild.compiler.weights.quantized_source import FormatReader, with_quantized
from mlcbuild.compiler.weights.shard_writing import write_shard
from mlcbuild.compiler.weights.source import open_source
from mlcbuild.errors import StageError

SHARD_ELEMENTS = (128 << 20) // 4  # 128 MiB of float32: whatever the source's type, the same shards


def run(*, source: Path, parameters: Path, manifest: Path, shards: Path, readers: Sequence[FormatReader]) -> None:
    """Raises StageError for a checkpoint that is damaged or does not fit the list."""
    listed = read_parameters(parameters)
    opened = open_source(source)
    try:
        weights = with_quantized(opened, listed.quantized, readers)
        checkpoint = Checkpoint(weights, listed, where=str(source))
        _require_tied(checkpoint, source)
        shards.mkdir(parents=True, exist_ok=True)
        entries: list[dict[str, object]] = []
        for index, group in enumerate(_packed(listed.parameters)):
            file_name = f"shard_{index:05}.safetensors"
            names = [tensor.name for tensor in sources_of(group)]
            write_shard(shards / file_name, checkpoint, names)
            entries.append({"file": file_name, "tensors": names})
    finally:
        opened.close()
    write_manifest(manifest, {"shards": entries})


def _require_tied(checkpoint: Checkpoint, source: Path) -> None:
    for one in checkpoint.untied:
        raise StageError(
            f"{source} has the tensor {one.tensor.name}, which is not equal to {one.equal_to}, though the model's "
            'config.json says "tie_word_embeddings"',
            advice=('set "tie_word_embeddings" to false in the file that the model has as its `config`',),
        )


def _packed(parameters: tuple[Parameter, ...]) -> Iterator[list[Parameter]]:
    """Parameters in order, as many to a shard as fit; what is larger has a shard of its own."""
    shard: list[Parameter] = []
    elements = 0
    for group in _together(parameters):
        size = sum(math.prod(tensor.shape) for tensor in sources_of(group))
        if shard and elements + size > SHARD_ELEMENTS:
            yield shard
            shard, elements = [], 0
        shard += group
        elements += size
    if shard:
        yield shard


def _together(parameters: tuple[Parameter, ...]) -> list[list[Parameter]]:
    """Parameters that are made of the same tensors, in groups in the order of their first members."""
    group_of: dict[str, int] = {}  # by the tensors that a group is made of
    groups: dict[int, list[Parameter]] = {}
    for number, parameter in enumerate(parameters):
        joined = sorted({group_of[tensor.name] for tensor in parameter.sources if tensor.name in group_of})
        first = joined[0] if joined else number
        members = [member for group in joined for member in groups.pop(group)]
        groups[first] = [*members, parameter]
        group_of |= {tensor.name: first for member in groups[first] for tensor in member.sources}
    return [groups[first] for first in sorted(groups)]
