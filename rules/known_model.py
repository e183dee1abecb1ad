"""A model whose config.json is a file of the workspace: resolved while the workspace is analysed.

What config.json alone shows is told before anything runs, with the place of the attribute that names the file. A model
that is fetched or made is resolved by the same code in ResolveModel, before anything else of its targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlcbuild.compiler.models.checkpoints.parameters import ParameterList
from mlcbuild.compiler.models.config import parse_document
from mlcbuild.compiler.models.description import ModelDescription
from mlcbuild.compiler.models.resolving import resolve
from mlcbuild.engine.action import SourceArtifact
from mlcbuild.errors import StageError
from mlcbuild.rules.checkpoint_formats import formats
from mlcbuild.rules.families import families
from mlcbuild.rules.rule import RuleContext


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """What ResolveModel will write of `document`, the config.json."""

    document: Mapping[str, object]
    description: ModelDescription
    parameters: ParameterList


def known_model(context: RuleContext, config: SourceArtifact, *, attribute: str) -> KnownModel | None:
    """The model of a config.json; None after reporting what is wrong with the file, which `attribute` names."""
    try:
        content = context.read(config, attribute=attribute)
        document = parse_document(content, where=config.path)
        description, parameters = resolve(document, families(), formats(), where=config.path)
    except StageError as error:
        context.report(error, attribute=attribute)
        return None
    return KnownModel(document=document, description=description, parameters=parameters)
