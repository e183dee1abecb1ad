"""The short way of a build that has nothing to do: see `mlcbuild.engine.no_op_record`. Imports little, on purpose."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import mlcbuild
from mlcbuild.cli.output import text
from mlcbuild.engine.no_op_record import NoOpRecord, load_no_op_record

# What of the environment says where the cache and the user's settings lie.
_VARIABLES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
_REMOTE = "MLCBUILD_REMOTE"
# What they hold decides nothing, and does not belong into a file.
_SECRET_VARIABLES = frozenset({"MLCBUILD_REMOTE_HEADERS", "MLCBUILD_REMOTE_SIGNING_KEY"})


def request_text(
    patterns: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    configuration: str = "",
    disk_cache: Path | None = None,
    fetch_only: bool = False,
    remote: tuple[str, str, bool] = ("", "", False),
) -> str:
    """All that a build's outcome depends on besides files: what is asked for, where, by whom and with which Python.

    `remote` holds the address, the uploads and whether there is none, as the command line says them. That what is said
    of it by variables counts as well lets a mistake in them be told; passwords are left out.
    """
    return json.dumps(
        {
            "patterns": list(patterns),
            "directory": str(directory.absolute()),
            "configuration": configuration,
            "disk_cache": str(disk_cache.absolute()) if disk_cache else None,
            "fetch_only": fetch_only,
            "environment": [environment.get(name) for name in _VARIABLES],
            "remote": [
                *(part if isinstance(part, bool) else without_credentials(str(part)) for part in remote),
                *(
                    f"{name}={without_credentials(environment[name])}"
                    for name in sorted(environment)
                    if name.startswith(_REMOTE) and name not in _SECRET_VARIABLES
                ),
            ],
            "user": os.geteuid(),
            "program": [mlcbuild.__version__, sys.version, sys.executable, *sys.path],
        }
    )


def without_credentials(text: str) -> str:
    """An argument or a variable without what may be a name and a password in an address."""
    head, mark, rest = text.partition("://")
    return f"{head}{mark}…@{rest.rpartition('@')[2]}" if mark and "@" in rest else text


def current_build(request: str, *, directory: Path, state_directory: str) -> NoOpRecord | None:
    """The last build of this request where it has nothing to do; the nearest workspace at or above `directory`."""
    for folder in (directory.absolute(), *directory.absolute().parents):
        found = load_no_op_record(folder / state_directory, request)
        if found is not None:
            return found if found.is_current(folder) else None
    return None


def tell(build: NoOpRecord, *, wall_seconds: float) -> None:
    """What the long way would print of it."""
    with contextlib.suppress(BrokenPipeError):
        told = f"{text.plural(build.actions, 'action')}: {build.actions} up to date"
        print(f"{told} · {text.seconds(wall_seconds)}", file=sys.stderr, flush=True)
    for path in build.outputs:
        print(path)


def observed_program() -> set[str]:
    """Every module that is loaded from a file, but for the standard library, which Python's version stands for."""
    standard = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {
        os.path.abspath(file)  # noqa: PTH100
        for file in files
        if file and (not file.startswith(standard) or "site-packages" in file or "dist-packages" in file)
    }
