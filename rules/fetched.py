"""What the fetch rules share: an action whose only output has a pinned digest.

The pin and the file's name are the whole key: another mirror, another version of pip or of mlcbuild still gives
the same bytes, or the action fails. Where to look is a hint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.engine.action import CachePolicy, DerivedArtifact, ExecutionRequirements, JsonValue
from mlcbuild.rules.providers import FilesInfo, Provider
from mlcbuild.rules.rule import Providers, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind

SHA256 = Attribute(
    name="sha256",
    kind=AttributeKind.STRING,
    doc="The SHA-256 of the file, 64 hexadecimal digits. `mlcbuild fetch --update` writes it. A file with another "
    "digest is refused.",
)
FILE_NAME = Attribute(
    name="file_name",
    kind=AttributeKind.STRING,
    doc="What the fetched file is called in the build. Left out: the last segment of where it comes from.",
)


@dataclass(frozen=True, kw_only=True)
class FetchInfo(Provider):
    """Where a fetched file comes from, for `mlcbuild fetch --update`: the kind of source and its hints."""

    name: ClassVar[str] = "fetch"
    noun: ClassVar[str] = "fetched file"

    kind: str
    hints: tuple[tuple[str, JsonValue], ...]


def fetch(
    context: RuleContext,
    kind: str,
    hints: Mapping[str, JsonValue],
    *,
    default_name: str,
    directory: bool = False,
) -> Providers:
    """Declare the Fetch action of a target. Raises WorkspaceError for a pin that is no SHA-256."""
    sha256 = context.target.optional_string("sha256") or ""
    if sha256 and (len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef")):
        raise context.error(
            f'"{sha256}" is not a SHA-256',
            attribute="sha256",
            advice=("64 lower-case hexadecimal digits; `mlcbuild fetch --update` writes them",),
        )
    frozen_hints = tuple(sorted(hints.items()))
    name = default_name if directory else context.target.optional_string("file_name") or default_name
    if "/" in name or name in ("", ".", ".."):
        raise context.error(f'"{name}" is not a file name', attribute="file_name" if not directory else "name")
    parameters: dict[str, JsonValue] = {"sha256": sha256}
    if not directory:
        parameters["name"] = name
    action = context.stage(
        "Fetch",
        f"mlcbuild.execution.fetch.{kind}:run",
        outputs={"directory": "repository/"} if directory else {"file": name},
        parameters=parameters,
        requirements=ExecutionRequirements(network=True, execution_hints=frozen_hints),
        pinned_content=sha256,
        cache=CachePolicy.ALL if sha256 else CachePolicy.NONE,
    )
    output: DerivedArtifact = action.output(action.outputs[0])
    place = "" if directory else name
    return (FilesInfo(files=((place, output),)), FetchInfo(kind=kind, hints=frozen_hints))
