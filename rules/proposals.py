"""What `mlcbuild init` proposes for a model: its family, and a quantization for each kind of platform."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcbuild.compiler.models.config import parse_document
from mlcbuild.compiler.models.configuring import configure
from mlcbuild.compiler.models.gguf.architecture import gguf_architecture
from mlcbuild.compiler.models.resolving import resolve
from mlcbuild.compiler.weights.adapter import adapter_error
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.compiler.weights.gguf_parts import are_parts_of_one
from mlcbuild.errors import StageError
from mlcbuild.rules import schemes
from mlcbuild.rules.backend import Backend, backends
from mlcbuild.rules.checkpoint_formats import formats
from mlcbuild.rules.families import families
from mlcbuild.rules.known_model import KnownModel
from mlcbuild.rules.legality import legality

if TYPE_CHECKING:
    from mlcbuild.compiler.models.family import Family

GGUF_SUFFIX = ".gguf"
CONFIG = "config.json"
_WEIGHTS = (".safetensors", ".bin", ".pth", ".pt", GGUF_SUFFIX)


@dataclass(frozen=True, kw_only=True)
class ModelInHand:
    """A model on this machine's disk. Without weights it is a shape, enough for a library."""

    known: KnownModel
    family: Family[Any]
    has_weights: bool


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A kind of platform, and the first of its quantizations that a model can have there; "" if it can have none.

    `refused` are the others that were tried: name → why the model cannot have it.
    """

    backend: Backend
    quantization: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def platform(self) -> str:
        """The label of the kind's common platform."""
        return f"@platforms//:{self.backend.kind}"


def model_in_hand(path: Path) -> ModelInHand:
    """The model of a GGUF file, or of a folder with one or with a config.json.

    Raises StageError for anything else, for a model that no family has, with the reason, and for a tokenizer of a GGUF
    file that cannot be read.
    """
    has_weights = True
    names = sorted(each.name for each in path.iterdir()) if path.is_dir() else []
    if CONFIG in names:
        has_weights = any(name.endswith(_WEIGHTS) for name in names)
        document = _of_config(path / CONFIG)
    else:
        document = _of_gguf(_gguf_files(path, names) if path.is_dir() else (path,))
    description, parameters = resolve(
        document, families(), formats(), where=str(path / CONFIG if CONFIG in names else path)
    )
    (family,) = (each for each in families() if each.name == description.family)
    known = KnownModel(document=document, description=description, parameters=parameters)
    return ModelInHand(known=known, family=family, has_weights=has_weights)


def proposals(model: ModelInHand | None) -> Iterator[Proposal]:
    """One for each kind that has a common platform of its name. Without a model, the first quantizations are taken."""
    for kind, backend in backends().items():
        if kind not in backend.platforms:
            continue
        refused: dict[str, str] = {}
        for name in backend.proposed_quantizations:
            refused[name] = "" if model is None else _reason_against(model, name, backend)
            if not refused[name]:
                break
        chosen = next((name for name, reason in refused.items() if not reason), "")
        yield Proposal(
            backend=backend,
            quantization=chosen,
            refused={name: reason for name, reason in refused.items() if reason},
        )


def _reason_against(model: ModelInHand, quantization: str, backend: Backend) -> str:
    scheme = schemes.scheme(quantization)
    row = legality(model.family, scheme, backend)
    if not row.is_legal:
        return row.note
    _, invalid = configure(
        model.known.description,
        model.known.parameters,
        scheme=scheme,
        overrides={},
        kv_state_kinds=backend.kv_state_kinds,
        sliding_windows=backend.sliding_windows,
    )
    return invalid[0].error.message if invalid else ""


def _of_config(path: Path) -> Mapping[str, object]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StageError(f"{path} cannot be read: {error.strerror or error}") from None
    return parse_document(content, where=str(path))


def _of_gguf(paths: Sequence[Path]) -> Mapping[str, object]:
    try:
        file = GGUFFile(*paths)
    except OSError as error:
        raise StageError(f"{error.filename or paths[0]} cannot be read: {error.strerror or error}") from None
    # Its library, which not every command needs, takes a while to import.
    from mlcbuild.compiler.tokenizer.from_gguf import tokenizer_files

    try:
        architecture = gguf_architecture(file, families())
        document = architecture.config(file)
        tokenizer_files(file, architecture.cuts)  # A build would find what is wrong with it when it has begun.
        return document
    finally:
        file.close()


def _gguf_files(folder: Path, names: list[str]) -> list[Path]:
    """The one GGUF file of a folder, or its parts."""
    found = [name for name in names if name.endswith(GGUF_SUFFIX)]
    if len(found) == 1 or are_parts_of_one(found):
        return [folder / name for name in found]
    if found:
        shown = ", ".join(found[:4])
        raise StageError(f"{folder} holds {len(found)} GGUF files: {shown}", advice=("name one of them",))
    if (error := adapter_error(folder)) is not None:
        raise error
    holds = ", ".join(names[:6]) + (", …" if len(names) > 6 else "") if names else "nothing"
    raise StageError(
        f"{folder} holds no model", advice=(f"a model is a folder with {CONFIG}, or a GGUF file; it holds: {holds}",)
    )
