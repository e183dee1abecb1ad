"""`mlcbuild cache rm`: removes the results that keys and labels name."""

from __future__ import annotations

import re
from pathlib import Path

from mlcbuild.cache.inventory import bases
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.cache.maintenance import store_root
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.engine.last_build import STATE_FILE, LastBuild
from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.workspace.label import parse_label

_FEWEST_DIGITS = 4
_HASH_DIGITS = 64
_PREFIX = re.compile(r"[0-9a-f]+")
_MOST_SHOWN = 5


def remove_results(
    wanted: tuple[str, ...], disk_cache: Path | None, output: OutputFormat, options: GlobalOptions
) -> None:
    """Remove the results that keys and labels name; none, if one of the words names no result.

    Raises UsageError for such a word, WorkspaceErrors for a label without a target, and LocalEnvironmentError for a
    store that cannot be changed.
    """
    root = store_root(disk_cache)
    found: dict[Path, str] = {}
    for word in wanted:
        files = _of_label(word, root, options) if word.startswith(("//", ":")) else _of_prefix(word, root)
        found.update(dict.fromkeys(files, word))
    removed = []
    for file in found:
        try:
            file.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise LocalEnvironmentError(
                f"{file} cannot be removed: {error.strerror}", advice=("check its owner",)
            ) from error
        removed.append(file.name)
    if output is OutputFormat.JSON:
        print_json({"disk_cache": str(root), "removed": removed})
        return
    print(f"removed {text.plural(len(removed), 'result')}")


def _of_prefix(prefix: str, root: Path) -> list[Path]:
    digits = prefix.partition("/")[0]  # a key is shown with the size of its action
    if not _PREFIX.fullmatch(digits) or not _FEWEST_DIGITS <= len(digits) <= _HASH_DIGITS:
        raise UsageError(
            f'"{prefix}" is neither a label nor the first digits of a key',
            advice=(f"a key is hexadecimal, at least {_FEWEST_DIGITS} digits; a label begins with // or :",),
        )
    found = [file for base, _ in bases(root) for file in sorted((base / "ac" / digits[:2]).glob(f"{digits}*"))]
    found = [file for file in found if len(file.name) == _HASH_DIGITS]
    if not found:
        raise UsageError(f"no result in {root} has a key that begins with {digits}")
    if len({file.name for file in found}) > 1:
        shown = [file.name for file in found[:_MOST_SHOWN]]
        raise UsageError(
            f"{len(found)} results have keys that begin with {digits}",
            advice=(*shown, *(["…"] if len(found) > _MOST_SHOWN else []), "give more digits"),
        )
    return found


def _of_label(word: str, root: Path, options: GlobalOptions) -> list[Path]:
    workspace = open_workspace(options.directory, to_load=True)
    label = str(parse_label(word, package=workspace.current_package))
    last_build = LastBuild(workspace.state_directory / STATE_FILE)
    keys = [
        key.hash
        for identifier in last_build.identifiers()
        if identifier.startswith(f"{label} ") and (key := last_build.key_of(identifier))
    ]
    if not keys:
        workspace.load([str(label)], "")  # raises if there is no such target
        raise UsageError(
            f"no build in this workspace has run an action of {label}",
            advice=("build it first, or name the key of an action",),
        )
    files = (base / "ac" / key[:2] / key for base, _ in bases(root) for key in keys)
    return [file for file in files if file.is_file()]
