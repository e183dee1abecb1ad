"""`local_file`: a file of this machine that lies outside the workspace."""

from __future__ import annotations

from mlcbuild.rules.fetched import FILE_NAME, SHA256, fetch
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    path = context.target.string("path")
    return fetch(context, "local", {"path": path}, default_name=path.rstrip("/").rpartition("/")[2])


LOCAL_FILE = Rule(
    schema=RuleSchema(
        name="local_file",
        doc="A file outside the workspace, for instance weights that people must bring themselves. "
        "Files inside the workspace need no rule: a label names them.",
        attributes=(
            Attribute(
                name="path",
                kind=AttributeKind.STRING,
                mandatory=True,
                doc="An absolute path, or one that begins with ~/ (the home directory of who builds).",
            ),
            FILE_NAME,
            SHA256,
        ),
        provides=("files", "fetch"),
    ),
    implementation=implement,
)
