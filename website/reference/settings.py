"""Every setting of every table of `BUILD.toml` and of the user's `settings.toml`, with its variable."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mlcbuild.cli.settings.cache_limits import MAX_AGE_VARIABLE, MAX_SIZE_VARIABLE
from mlcbuild.cli.settings.execution import VARIABLES as EXECUTION_VARIABLES
from mlcbuild.cli.settings.remote import variable_of as remote_variable
from mlcbuild.cli.settings.user_file import CACHE_SETTINGS, HISTORY_SETTINGS
from mlcbuild.workspace.execution import EXECUTION_SETTINGS
from mlcbuild.workspace.remote import PERSONAL, REMOTE_SETTINGS
from mlcbuild.workspace.schema import Attribute
from mlcbuild.workspace.settings import CONFIGURATION_SETTINGS, WORKSPACE_SETTINGS
from website.reference.tables import table

_HEAD = """\
# Settings

Made from the code's own declarations. A setting has the value of the first of these that sets it: an option of
[the command](commands.md), the variable, the user's `settings.toml`, the root's `BUILD.toml`. The user's file is
`$XDG_CONFIG_HOME/mlcbuild/settings.toml`, by default in `~/.config`.
"""
_EXECUTION_VARIABLES = {attribute.name: variable for variable, attribute in EXECUTION_VARIABLES.items()}
_CACHE_VARIABLES = {"max_size": MAX_SIZE_VARIABLE, "max_age": MAX_AGE_VARIABLE}


def settings_page() -> str:
    """The page, in Markdown."""
    personal = {attribute.name for attribute in PERSONAL}
    shared = [attribute for attribute in REMOTE_SETTINGS if attribute.name not in personal]
    sections = (
        ("[workspace]", "In the root's `BUILD.toml` alone.", WORKSPACE_SETTINGS, None),
        (
            "[configuration.NAME]",
            "In the root's `BUILD.toml` alone: see [configurations](workspace.md#configurations).",
            CONFIGURATION_SETTINGS,
            None,
        ),
        ("[remote]", "In both files: see [remote caches](remote.md).", shared, remote_variable),
        (
            "[remote] of a user",
            "In the user's file and in variables alone: `BUILD.toml` belongs to everybody.",
            PERSONAL,
            remote_variable,
        ),
        ("[execution]", "In both files: see [Ray](ray.md).", EXECUTION_SETTINGS, _EXECUTION_VARIABLES.get),
        ("[cache]", "In the user's file alone: see [limits](cache.md#limits).", CACHE_SETTINGS, _CACHE_VARIABLES.get),
        ("[history]", "In the user's file alone: see [log](command-line.md#log).", HISTORY_SETTINGS, None),
    )
    parts = [_HEAD]
    for title, where, attributes, variable in sections:
        parts.append(f"## {title}\n\n{where}\n\n{_table(attributes, variable)}")
    return "\n".join(parts)


def _table(attributes: Iterable[Attribute], variable: Callable[[str], str | None] | None) -> str:
    rows = []
    for attribute in attributes:
        named = variable(attribute.name) if variable else None
        kind = " ".join(filter(None, [attribute.kind.value, attribute.range_text]))
        meaning = attribute.doc + (f" One of: {', '.join(attribute.allowed)}." if attribute.allowed else "")
        rows.append((f"`{attribute.name}`", f"`{named}`" if named else "", kind, meaning))
    return table(("setting", "variable", "type", "meaning"), rows)
