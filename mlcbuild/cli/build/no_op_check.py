"""The no-op check before a build: see `mlcbuild.engine.no_op_record`. It imports little, because it must be fast."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.output import text
from mlcbuild.cli.workspace.program import program_identity
from mlcbuild.engine.no_op_record import NoOpRecord, load_no_op_record

# They decide where the disk cache and the user's settings are.
_VARIABLES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
_REMOTE = "MLCBUILD_REMOTE"
# Their values do not change what is built, and secrets must not be written to a file.
_SECRET_VARIABLES = frozenset({"MLCBUILD_REMOTE_HEADERS", "MLCBUILD_REMOTE_SIGNING_KEY"})


def request_text(
    patterns: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    configuration: str = "",
    overrides: Sequence[str] = (),
    disk_cache: Path | None = None,
    fetch_only: bool = False,
    remote: tuple[str, str, bool] = ("", "", False),
    shard: str = "",
    timings: Sequence[Path] = (),
) -> str:
    """Everything that decides the outcome of a build besides files: patterns, options, variables, user and Python.

    `remote` has the options --remote, --remote-upload and --no-remote. Variables about the remote are part of the text,
    so that an error in one of them is reported; passwords are left out.
    """
    return json.dumps(
        {
            "patterns": list(patterns),
            "directory": str(directory.absolute()),
            "configuration": configuration,
            "overrides": list(overrides),
            "disk_cache": str(disk_cache.absolute()) if disk_cache else None,
            "fetch_only": fetch_only,
            "shard": [shard, *(str(path.absolute()) for path in timings)],
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
            "program": program_identity(),
        }
    )


def without_credentials(text: str) -> str:
    """An argument or a variable, with the name and password in an address replaced by `…`."""
    head, mark, rest = text.partition("://")
    return f"{head}{mark}…@{rest.rpartition('@')[2]}" if mark and "@" in rest else text


def current_build(request: str, *, directory: Path, state_directory: str) -> tuple[NoOpRecord, Path] | None:
    """The record of this request's last build if there is nothing to do, from the workspace around `directory`, and the
    root of the workspace.
    """
    if not os.path.isdir(directory):  # noqa: PTH112  `Path.is_dir` raises OSError for a path that is too long
        return None
    for folder in (directory.absolute(), *directory.absolute().parents):
        found = load_no_op_record(folder / state_directory, request)
        if found is not None:
            return (found, folder) if found.is_current(folder) else None
    return None


def print_no_op(build: NoOpRecord, options: GlobalOptions, *, quiet: bool) -> None:
    """Print what the whole build would print."""
    options.tell(build.notes)
    if not quiet:
        counts = f"{text.plural(build.actions, 'action')}: {build.actions} up to date"
        options.tell([f"{counts} · {text.seconds(options.elapsed())}"])
    for path in build.outputs:
        print(path)
