"""The door to checkpoints: one reader for each format, found by looking at the bytes.

A reader describes every tensor at once and reads them one by one; it writes nothing and runs nothing that a
file holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from mlcbuild.compiler.weights.adapter import adapter_error, is_adapter_file
from mlcbuild.compiler.weights.file_format import WeightFormat, weight_format
from mlcbuild.compiler.weights.tensor import Tensor, TensorDescription
from mlcbuild.errors import StageError

# By transformers' names, in the order in which it looks for them.
_STANDARD_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_SUFFIXES = ((".safetensors",), (".bin", ".pth", ".pt"), (".gguf",))
# Training state and tokenizers, which are kept in files of the same suffixes.
_NOT_WEIGHTS = ("training_args", "optimizer", "scheduler", "scaler", "rng_state", "random_states", "trainer_state")


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
    """The reader for a file or directory. Raises StageError for what is not a checkpoint, or a damaged one.

    In a directory the files that transformers reads come first, by their names; then files of other names:
    safetensors before torch checkpoints and those before GGUF.
    """
    if path.is_dir():
        chosen = _chosen(path)
        if chosen.name.endswith(".index.json"):
            from mlcbuild.compiler.weights.sharded import ShardedCheckpoint

            return ShardedCheckpoint(chosen, open_file=_open_file)
        return _open_file(chosen)
    if not path.exists():
        raise StageError(f"the weights {path} do not exist")
    return _open_file(path)


def gguf_file(path: Path) -> Path | None:
    """The GGUF file that `open_source` would read, or None where it would read another format.

    Raises StageError for several GGUF files, of which none is the model's alone.
    """
    if path.is_dir():
        if _standard_file(path) is not None or any(_candidates(path, suffixes) for suffixes in _SUFFIXES[:2]):
            return None
        files = _candidates(path, (".gguf",))
        return _only(files) if files else None
    if not path.is_file():
        return None
    # By its name alone, too: reading it says what it is instead.
    return path if path.suffix == ".gguf" or weight_format(path) is WeightFormat.GGUF else None


def _standard_file(directory: Path) -> Path | None:
    return next((directory / name for name in _STANDARD_FILES if (directory / name).is_file()), None)


def _chosen(directory: Path) -> Path:
    """The file to read, or the index that names the files."""
    standard = _standard_file(directory)
    if standard is not None:
        return standard
    if (error := adapter_error(directory)) is not None:
        raise error
    for suffixes in _SUFFIXES:
        if files := _candidates(directory, suffixes):
            return _only(files)
    raise StageError(f"{directory} holds no weights", advice=("known: *.safetensors, *.bin, *.pth, *.pt and *.gguf",))


def _candidates(directory: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files that may hold a model's weights."""
    return sorted(
        path
        for path in directory.iterdir()
        if path.name.endswith(suffixes) and not path.name.startswith(_NOT_WEIGHTS) and not is_adapter_file(path)
    )


def _only(files: list[Path]) -> Path:
    if len(files) == 1:
        return files[0]
    directory, names = files[0].parent, ", ".join(path.name for path in files[:4]) + (", …" if len(files) > 4 else "")
    if files[0].suffix == ".gguf":
        raise StageError(
            f"{directory} holds {len(files)} GGUF files: {names}",
            advice=(
                "name the one to read as the `source`",
                "parts of one model (-00001-of-…) are joined by `llama-gguf-split --merge`",
            ),
        )
    index = "model.safetensors.index.json" if files[0].suffix == ".safetensors" else "pytorch_model.bin.index.json"
    raise StageError(
        f"{directory} holds {len(files)} files of weights: {names}, and no {index} that says which tensor is where"
    )


def _open_file(path: Path) -> WeightSource:
    found = weight_format(path)
    if found is WeightFormat.GGUF:
        from mlcbuild.compiler.weights.gguf_weights import GGUFWeights

        return GGUFWeights(path)
    if found is WeightFormat.TORCH:
        from mlcbuild.compiler.weights.torch_checkpoint import TorchCheckpoint

        return TorchCheckpoint(path)
    from mlcbuild.compiler.weights.safetensors_file import SafetensorsFile

    return SafetensorsFile(path)
