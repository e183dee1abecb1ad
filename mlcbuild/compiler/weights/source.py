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
from mlcbuild.compiler.weights.gguf_parts import are_parts_of_one
from mlcbuild.compiler.weights.tensor import Rows, Tensor, TensorDescription
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

    def read(self, name: str, rows: Rows | None = None) -> Tensor:
        """A tensor, or some of its rows: of a tensor that has all experts, those of one."""

    def close(self) -> None: ...


def open_source(path: Path) -> WeightSource:
    """The reader for a file or directory. Raises StageError for what is not a checkpoint, or a damaged one.

    In a directory the files that transformers reads come first, by their names; then files of other names:
    safetensors before torch checkpoints and those before GGUF.
    """
    if path.is_dir():
        chosen = _chosen(path)
        if chosen[0].name.endswith(".index.json"):
            from mlcbuild.compiler.weights.sharded import ShardedCheckpoint

            return _unpacked(ShardedCheckpoint(chosen[0], open_file=_open_file))
        return _unpacked(_open_file(*chosen))
    if not path.exists():
        raise StageError(f"the weights {path} do not exist")
    return _unpacked(_open_file(path))


def _unpacked(source: WeightSource) -> WeightSource:
    """The source with tensors as the models' parameters know them."""
    if source.has_gguf_names:
        from mlcbuild.compiler.weights.fused_experts import with_experts_apart

        return with_experts_apart(source)
    from mlcbuild.compiler.weights.mxfp4 import with_mxfp4

    return with_mxfp4(source)


def open_adapter_file(path: Path) -> WeightSource:
    """The reader for an adapter's file, safetensors or a torch checkpoint. Raises StageError for another one."""
    if weight_format(path) is WeightFormat.GGUF:
        raise StageError(f"{path} is a GGUF file; adapters are read from safetensors and torch checkpoints")
    return _open_file(path)


def gguf_files(path: Path) -> tuple[Path, ...]:
    """The GGUF file that `open_source` would read, or the parts of it; nothing where it would read another format.

    Raises StageError for several GGUF files that are not parts of one.
    """
    if path.is_dir():
        if _standard_file(path) is not None or any(_candidates(path, suffixes) for suffixes in _SUFFIXES[:2]):
            return ()
        files = _candidates(path, (".gguf",))
        return _one(files) if files else ()
    if not path.is_file():
        return ()
    # By its name alone, too: reading it says what it is instead.
    return (path,) if path.suffix == ".gguf" or weight_format(path) is WeightFormat.GGUF else ()


def _standard_file(directory: Path) -> Path | None:
    return next((directory / name for name in _STANDARD_FILES if (directory / name).is_file()), None)


def _chosen(directory: Path) -> tuple[Path, ...]:
    """The file to read, its parts, or the index that names the files."""
    standard = _standard_file(directory)
    if standard is not None:
        return (standard,)
    if (error := adapter_error(directory)) is not None:
        raise error
    for suffixes in _SUFFIXES:
        if files := _candidates(directory, suffixes):
            return _one(files)
    raise StageError(f"{directory} holds no weights", advice=("known: *.safetensors, *.bin, *.pth, *.pt and *.gguf",))


def _candidates(directory: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files that may hold a model's weights."""
    return sorted(
        path
        for path in directory.iterdir()
        if path.name.endswith(suffixes) and not path.name.startswith(_NOT_WEIGHTS) and not is_adapter_file(path)
    )


def _one(files: list[Path]) -> tuple[Path, ...]:
    """The one file of a folder, or all parts of it."""
    names = [path.name for path in files]
    if len(files) == 1 or are_parts_of_one(names):
        return tuple(files)
    directory, shown = files[0].parent, ", ".join(names[:4]) + (", …" if len(files) > 4 else "")
    if files[0].suffix == ".gguf":
        raise StageError(
            f"{directory} holds {len(files)} GGUF files, which are not parts of one: {shown}",
            advice=("name the one to read as the `source`; parts of one are called NAME-00001-of-00003.gguf",),
        )
    index = "model.safetensors.index.json" if files[0].suffix == ".safetensors" else "pytorch_model.bin.index.json"
    raise StageError(
        f"{directory} holds {len(files)} files of weights: {shown}, and no {index} that says which tensor is where"
    )


def _open_file(path: Path, *parts: Path) -> WeightSource:
    """The reader for a file; `parts` are the others of a split one."""
    found = weight_format(path)
    if found is WeightFormat.GGUF:
        from mlcbuild.compiler.weights.gguf_weights import GGUFWeights

        return GGUFWeights(path, *parts)
    if found is WeightFormat.TORCH:
        from mlcbuild.compiler.weights.torch_checkpoint import TorchCheckpoint

        return TorchCheckpoint(path)
    from mlcbuild.compiler.weights.safetensors_file import SafetensorsFile

    return SafetensorsFile(path)
