"""Rules of a small world, and workspaces written from texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.errors import WorkspaceErrors
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.loader import LoadedWorkspace, load
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

SCHEMAS = {
    schema.name: schema
    for schema in (
        RuleSchema(
            name="platform",
            doc="What a library runs on.",
            provides=("platform",),
            attributes=(
                Attribute(
                    name="kind",
                    kind=AttributeKind.CHOICE,
                    allowed=("llvm", "cuda"),
                    mandatory=True,
                    doc="The backend.",
                ),
                Attribute(
                    name="arch",
                    kind=AttributeKind.STRING_LIST,
                    allowed=("sm_80", "sm_90"),
                    doc="Architectures.",
                ),
            ),
        ),
        RuleSchema(
            name="model",
            doc="A model.",
            provides=("model",),
            attributes=(
                Attribute(name="config", kind=AttributeKind.PATH, doc="Its shape."),
                Attribute(name="source", kind=AttributeKind.LABEL, allow_files=True, doc="Its weights."),
            ),
        ),
        RuleSchema(
            name="library",
            doc="A compiled model.",
            attributes=(
                Attribute(
                    name="model",
                    kind=AttributeKind.LABEL,
                    mandatory=True,
                    provides=("model",),
                    doc="What is compiled.",
                ),
                Attribute(
                    name="quantization",
                    kind=AttributeKind.CHOICE,
                    allowed=("q0f16", "q0f32", "q4f16_1", "q4f32_1"),
                    mandatory=True,
                    doc="The scheme.",
                ),
                Attribute(
                    name="opt",
                    kind=AttributeKind.CHOICE,
                    allowed=("O0", "O1", "O2", "O3"),
                    default="O2",
                    doc="The effort.",
                ),
                Attribute(
                    name="overrides",
                    kind=AttributeKind.TABLE,
                    fields=(
                        Attribute(
                            name="max_batch_size",
                            kind=AttributeKind.INTEGER,
                            minimum=1,
                            maximum=65536,
                            doc="The most sequences at a time.",
                        ),
                        Attribute(name="scale", kind=AttributeKind.NUMBER, maximum=1, doc="A share of the whole."),
                        Attribute(name="shards", kind=AttributeKind.INTEGER, minimum=1, maximum=1, doc="Parts."),
                        Attribute(
                            name="policy", kind=AttributeKind.CHOICE, allowed=("keep", "drop"), doc="What is kept."
                        ),
                    ),
                    doc="Settings of the model.",
                ),
                Attribute(name="notes", kind=AttributeKind.TABLE, doc="Anything JSON can say."),
                Attribute(
                    name="resources",
                    kind=AttributeKind.TABLE,
                    fields=(
                        Attribute(name="cpus", kind=AttributeKind.INTEGER, mandatory=True, minimum=1, doc="CPUs."),
                    ),
                    doc="What it takes.",
                ),
                Attribute(name="platform", kind=AttributeKind.LABEL, provides=("platform",), doc="What it runs on."),
            ),
        ),
        RuleSchema(
            name="thing",
            doc="Anything.",
            attributes=(
                Attribute(name="text", kind=AttributeKind.STRING, nonempty=True, doc="A text."),
                Attribute(name="number", kind=AttributeKind.INTEGER, doc="A number."),
                Attribute(name="flag", kind=AttributeKind.BOOLEAN, doc="A switch."),
                Attribute(name="words", kind=AttributeKind.STRING_LIST, placeholders=("inputs",), doc="Some words."),
                Attribute(name="first", kind=AttributeKind.LABEL, doc="One target."),
                Attribute(name="needs", kind=AttributeKind.LABEL_LIST, doc="Other targets."),
                Attribute(name="files", kind=AttributeKind.LABEL_LIST, allow_files=True, doc="Targets or files."),
                Attribute(name="variables", kind=AttributeKind.STRING_MAP, doc="Names and texts."),
                Attribute(name="options", kind=AttributeKind.TABLE, doc="Anything JSON can say."),
                Attribute(name="path", kind=AttributeKind.PATH, doc="A file."),
            ),
        ),
    )
}

ROOT = '[workspace]\nname = "world"\n'


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write files below a root; a root `BUILD.toml` is added where none is given."""
    for path, text in {"BUILD.toml": ROOT, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def load_world(
    root: Path,
    *patterns: str,
    package: str = "",
    configuration: str = "default",
    schemas: Mapping[str, RuleSchema] = SCHEMAS,
) -> LoadedWorkspace:
    """Load with this world's rules, everything unless told otherwise."""
    return load(root, schemas, patterns or ("//...",), package, configuration=configuration)


def errors_of(root: Path, *patterns: str, configuration: str = "default") -> str:
    """The whole text of what is wrong. Fails where nothing is."""
    with pytest.raises(WorkspaceErrors) as caught:
        load_world(root, *patterns, configuration=configuration)
    return str(caught.value)


def names(loaded: LoadedWorkspace) -> list[str]:
    """The requested labels, as written."""
    return [str(label) for label in loaded.requested]


def label(text: str) -> Label:
    """A label from its full form."""
    package, _, name = text.removeprefix("//").partition(":")
    return Label(package, name)


def toml(value: Any) -> str:
    """A value as TOML, written without the code under test."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return (
            '"' + "".join(f"\\u{ord(c):04x}" if c in '"\\' or ord(c) < 32 or ord(c) == 127 else c for c in value) + '"'
        )
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(toml(item) for item in value)}]"
    return "{" + ", ".join(f"{toml(key)} = {toml(item)}" for key, item in value.items()) + "}"
