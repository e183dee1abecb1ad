"""Which architecture a GGUF file has, of those that the families read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.family import GGUFArchitecture
from mlcbuild.compiler.models.resolving import AnyFamily
from mlcbuild.errors import StageError
from mlcbuild.suggestions import known_values

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile


def gguf_architecture(file: GGUFFile, families: Iterable[AnyFamily]) -> GGUFArchitecture:
    """The architecture of a file's model. Raises StageError for a file that holds no whole model, and for an
    architecture of no family."""
    _check_contents(file)
    architectures = {name: architecture for family in families for name, architecture in family.gguf.items()}
    name = file.string("general.architecture")
    if name not in architectures:
        raise StageError(
            f'{file.path} holds a model of the architecture "{name}", which is not supported',
            advice=(known_values(name, sorted(architectures)),),
        )
    return architectures[name]


def _check_contents(file: GGUFFile) -> None:
    """Raise StageError for a file that holds something else than a whole model."""
    kind = file.string("general.type", "model")
    if kind != "model":
        raise StageError(f'{file.path} holds no model: its "general.type" is "{kind}"')
