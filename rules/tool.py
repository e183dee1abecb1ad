"""`tool`: a program that `command` targets run."""

from __future__ import annotations

from mlcbuild.engine.action import DerivedArtifact, SourceArtifact
from mlcbuild.rules.providers import ToolInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    target = context.target
    path = target.optional_string("path") or ""
    label = target.optional_label("executable")
    if bool(path) == bool(label):
        raise context.error("a tool has either `path` or `executable`")
    if label is None:
        if not path.startswith("/"):
            raise context.error(
                f'path "{path}" is not absolute',
                attribute="path",
                advice=("a program of the workspace is named by `executable`",),
            )
        return (ToolInfo(path=path, arguments=target.strings("arguments")),)
    files = context.files(label).files
    if len(files) != 1 or not isinstance(files[0][1], SourceArtifact | DerivedArtifact):
        raise context.error(f"executable {label} is not one file", attribute="executable")
    return (ToolInfo(executable=files[0][1], arguments=target.strings("arguments")),)


TOOL = Rule(
    schema=RuleSchema(
        name="tool",
        doc="A program, declared so that its content counts: whoever runs it reruns when it changes.",
        attributes=(
            Attribute(
                name="path",
                kind=AttributeKind.STRING,
                doc="The absolute path of a program of the machine. Its file's content is in the key, but not the "
                "libraries and files that it reads.",
            ),
            Attribute(
                name="executable",
                kind=AttributeKind.LABEL,
                allow_files=True,
                doc="A file of the workspace, or a target with one file, that can be executed.",
            ),
            Attribute(
                name="arguments",
                kind=AttributeKind.STRING_LIST,
                doc="Arguments given before those of the command.",
            ),
        ),
        provides=("tool",),
    ),
    implementation=implement,
)
