"""`pypi_file`: one file out of a pinned package of a Python package index."""

from __future__ import annotations

from mlcbuild.rules.fetched import FILE_NAME, SHA256, fetch
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    target = context.target
    path = target.string("path")
    hints = {"package": target.string("package"), "version": target.string("version"), "path": path}
    return fetch(context, "pypi", hints, default_name=path.rpartition("/")[2])


PYPI_FILE = Rule(
    schema=RuleSchema(
        name="pypi_file",
        doc="A file out of a wheel, fetched with pip from the index that the user's pip is set to.",
        attributes=(
            Attribute(name="package", kind=AttributeKind.STRING, mandatory=True, doc="The distribution's name."),
            Attribute(name="version", kind=AttributeKind.STRING, mandatory=True, doc="Its exact version."),
            Attribute(
                name="path",
                kind=AttributeKind.STRING,
                mandatory=True,
                doc="The file's path inside the wheel, with /.",
            ),
            FILE_NAME,
            SHA256,
        ),
        provides=("files", "fetch"),
    ),
    implementation=implement,
)
