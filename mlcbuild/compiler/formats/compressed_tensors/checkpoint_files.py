"""Files of a Hugging Face checkpoint: `model.safetensors`, or shards with their index."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mlcbuild.compiler.weights.safetensors_file import write_safetensors
from mlcbuild.compiler.weights.tensor import Tensor, TensorDescription

SHARD_BYTES = 5_000_000_000
_METADATA = {"format": "pt"}  # transformers asks whose tensors a file has


def write_checkpoint(
    directory: Path,
    tensors: Sequence[TensorDescription],
    read: Callable[[TensorDescription], Tensor],
) -> None:
    """Write tensors in the order given, read one at a time, by the names of files that transformers looks for."""
    directory.mkdir(parents=True, exist_ok=True)
    shards = list(_shards(tensors, SHARD_BYTES))
    if len(shards) == 1:
        write_safetensors(directory / "model.safetensors", shards[0], read, metadata=_METADATA)
        return
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_safetensors(directory / name, shard, read, metadata=_METADATA)
        places |= {tensor.name: name for tensor in shard}
    size = sum(tensor.size_bytes for tensor in tensors)
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(places.items()))}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _shards(tensors: Iterable[TensorDescription], most: int) -> Iterable[list[TensorDescription]]:
    shard: list[TensorDescription] = []
    size = 0
    for tensor in tensors:
        if shard and size + tensor.size_bytes > most:
            yield shard
            shard, size = [], 0
        shard.append(tensor)
        size += tensor.size_bytes
    yield shard
