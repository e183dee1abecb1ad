"""Toolchains: whether each is installed, by its metadata, and whether it works, in a separate process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

from mlcbuild.doctor.check import Check
from mlcbuild.doctor.children import run_python
from mlcbuild.doctor.finding import Figure, Finding, failed, ok, skipped
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.figures import duration
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.table import every, find
from mlcbuild.toolchains.toolchain import Toolchain

_MORE_SECONDS = 5.0  # to end the process


def toolchain_checks(needed: Callable[[], Mapping[str, str]] = dict) -> Iterator[Check]:
    """One check for each toolchain. One that needs a path is checked if its trial does not need it, and for each path
    that the workspace names. `needed` tells which toolchains the workspace needs, each with the label of a target.
    """
    known = cache(needed)
    for toolchain in every():
        if toolchain.trial or not toolchain.takes_path:
            yield Check(
                name=toolchain.name,
                examine=lambda toolchain=toolchain: examine_toolchain(toolchain, needed=known),  # type: ignore[misc]
                seconds=toolchain.trial_seconds + _MORE_SECONDS,
            )
    for name in sorted(known()):
        if ":" in name:
            yield Check(name=name, examine=lambda name=name: _examine_at_path(name, known()[name]))  # type: ignore[misc]


def examine_toolchain(
    toolchain: Toolchain, files: InstalledFiles | None = None, needed: Callable[[], Mapping[str, str]] = dict
) -> Finding:
    """Raises LocalEnvironmentError if a toolchain that mlcbuild or the workspace needs is not installed."""
    files = files or InstalledFiles(JsonCache(None, kind="doctor"))
    version = ""
    if not toolchain.takes_path:
        try:
            toolchain.check(files, "")
        except LocalEnvironmentError as error:
            if not toolchain.is_optional:
                raise
            if owner := needed().get(toolchain.name):
                return failed(f"{error.message}, and {owner} needs it", *error.advice)
            return skipped(error.message, *error.advice)
        version = toolchain.version(files)
    if not toolchain.trial:
        return ok(version, version=version)
    child = run_python(toolchain.trial, seconds=toolchain.trial_seconds)
    if child.ended:
        return failed(f"{version + ': ' if version else ''}its trial {child.ended}", *toolchain.repair(files))
    if reason := child.document.get("skipped"):
        return skipped(str(reason))
    figures = _figures(child.document)
    measured = str(child.document.get("done", "tried"))
    if isinstance(seconds := figures.get("seconds"), float):
        measured += f" in {duration(seconds)}"
    return ok(f"{version}; {measured}" if version else measured, version=version, **figures)


def _examine_at_path(name: str, owner: str) -> Finding:
    toolchain, path = find(name)
    files = InstalledFiles(JsonCache(None, kind="doctor"))
    try:
        toolchain.check(files, path)
    except LocalEnvironmentError as error:
        return failed(f"{error.message}, and {owner} needs it", *error.advice)
    return ok(f"installed; {owner} needs it")


def _figures(measured: Mapping[str, object]) -> dict[str, Figure]:
    return {name: value for name, value in measured.items() if name != "done" and isinstance(value, str | int | float)}
