"""`filegroup`: files under one name."""

from __future__ import annotations

from mlcbuild.engine.action import Artifact
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    files: dict[str, Artifact] = {}
    for label in context.target.labels("srcs"):
        for path, artifact in context.files(label).files:
            if files.setdefault(path, artifact) != artifact:
                raise context.error(f'two files would lie at "{path}"', attribute="srcs")
    return (FilesInfo(files=tuple(sorted(files.items()))),)


FILEGROUP = Rule(
    schema=RuleSchema(
        name="filegroup",
        doc="Files and folders of the workspace, and files of other targets, as one target.",
        attributes=(
            Attribute(
                name="srcs",
                kind=AttributeKind.LABEL_LIST,
                mandatory=True,
                allow_files=True,
                doc="Files, folders and targets with files.",
            ),
        ),
        provides=("files",),
    ),
    implementation=implement,
)
