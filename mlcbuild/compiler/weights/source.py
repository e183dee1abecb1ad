"""The door to checkpoints: one reader for each format, found by looking at the bytes.

A reader describes every tensor at once and reads them one by one; it writes nothing and runs nothing that a
file holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from mlcbuild.compiler.weights.tensor import Tensor, TensorDescription
from mlcbuild.errors import StageError

_SAFETENSORS_INDEX = "model.safetensors.index.json"
_TORCH_INDEX = "pytorch_model.bin.index.json"


class WeightSource(Protocol):
    """A checkpoint, by its own names of tensors."""

    @property
    def has_gguf_names(self) -> bool:
        """Whether names and shapes are those of a GGUF file, and not Hugging Face's."""

    @property
    def descriptions(self) -> Mapping[str, TensorDescription]: ...

    def read(self, name: str) -> Tensor: ...

    def close(self) -> None: ...


def open_source(path: Path) -> WeightSource:
    """The reader for a file or directory. Raises StageError for what is no checkpoint, or a damaged one.

    In a directory safetensors come before torch checkpoints and those before GGUF; an index before a single
    file.
    """
    if path.is_dir():
        return _open_directory(path)
    if not path.exists():
        raise StageError(f"the weights {path.name} do not exist")
    return _open_file(path)


def gguf_file(path: Path) -> Path | None:
    """The GGUF file that `open_source` would read, or None where it would read another format."""
    if path.is_dir():
        if _candidates(path, ".safetensors") or _candidates(path, ".bin") or _candidates(path, ".pth"):
            return None
        files = _candidates(path, ".gguf")
        return files[0] if len(files) == 1 else None
    return path if path.is_file() and _head(path)[:4] == b"GGUF" else None


def _candidates(directory: Path, suffix: str) -> list[Path]:
    """Files that may hold weights: training state and tokenizers are kept in files of the same suffixes."""
    names = ("training_args.bin", "optimizer.bin", "scheduler.bin", "optimizer.pth", "scheduler.pth")
    return sorted(path for path in directory.iterdir() if path.name.endswith(suffix) and path.name not in names)


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(16)


def _open_file(path: Path) -> WeightSource:
    from mlcbuild.compiler.weights.gguf_weights import GGUFWeights
    from mlcbuild.compiler.weights.safetensors_file import SafetensorsFile
    from mlcbuild.compiler.weights.torch_checkpoint import TorchCheckpoint

    head = _head(path)
    if head[:4] == b"GGUF":
        return GGUFWeights(path)
    if head[:4] == b"PK\x03\x04":
        return TorchCheckpoint(path)
    if head[:1] == b"\x80":
        raise StageError(
            f"{path.name} is a torch checkpoint of the form before torch 1.6, which only pickle can read",
            advice=("load it with torch where you trust it, and save it again as safetensors",),
        )
    if path.suffix == ".safetensors" or head[8:9] == b"{":
        return SafetensorsFile(path)
    raise StageError(
        f"{path.name} is no checkpoint: it begins with {head[:8]!r}",
        advice=("known: safetensors, torch checkpoints (zip), GGUF",),
    )


def _open_directory(directory: Path) -> WeightSource:
    from mlcbuild.compiler.weights.sharded import ShardedCheckpoint

    for index_name, suffixes in ((_SAFETENSORS_INDEX, (".safetensors",)), (_TORCH_INDEX, (".bin", ".pth"))):
        index = directory / index_name
        if index.exists():
            return ShardedCheckpoint(index, open_file=_open_file)
        files = [path for suffix in suffixes for path in _candidates(directory, suffix)]
        if len(files) == 1:
            return _open_file(files[0])
        if files:
            raise StageError(
                f"the checkpoint has {len(files)} files such as {files[0].name}, and no {index_name} that says "
                "which tensor is where"
            )
    files = _candidates(directory, ".gguf")
    if len(files) == 1:
        return _open_file(files[0])
    if files:
        names = ", ".join(path.name for path in files)
        raise StageError(f"the checkpoint has {len(files)} GGUF files: {names}; name the one to read")
    raise StageError("the directory holds no weights", advice=("known: *.safetensors, *.bin, *.pth and *.gguf",))
