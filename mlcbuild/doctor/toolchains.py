"""Toolchains: whether each is installed, by metadata first, and then tried in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlcbuild.doctor.check import Check
from mlcbuild.doctor.children import run_python
from mlcbuild.doctor.finding import Figure, Finding, ok, problem, skipped
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.figures import duration
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.table import every
from mlcbuild.toolchains.toolchain import Toolchain

_MORE_SECONDS = 5.0  # for a process to be ended


def toolchain_checks() -> Sequence[Check]:
    """One for each toolchain. One that takes a path is checked as far as its trial needs none."""
    return tuple(
        Check(
            name=toolchain.name,
            examine=lambda toolchain=toolchain: examine_toolchain(toolchain),  # type: ignore[misc]
            seconds=toolchain.trial_seconds + _MORE_SECONDS,
        )
        for toolchain in every()
        if toolchain.trial or not toolchain.takes_path
    )


def examine_toolchain(toolchain: Toolchain, files: InstalledFiles | None = None) -> Finding:
    """Raises LocalEnvironmentError where a toolchain that mlcbuild needs is not installed."""
    files = files or InstalledFiles(JsonCache(None, kind="doctor"))
    version = ""
    if not toolchain.takes_path:
        try:
            toolchain.check(files, "")
        except LocalEnvironmentError as error:
            if not toolchain.is_optional:
                raise
            return skipped(error.message, *error.advice)
        version = toolchain.version(files)
    if not toolchain.trial:
        return ok(version, version=version)
    child = run_python(toolchain.trial, seconds=toolchain.trial_seconds)
    if child.ended:
        return problem(f"{version + ': ' if version else ''}its trial {child.ended}", *toolchain.repair())
    if reason := child.told.get("skipped"):
        return skipped(str(reason))
    figures = _figures(child.told)
    told = str(child.told.get("done", "tried"))
    if isinstance(seconds := figures.get("seconds"), float):
        told += f" in {duration(seconds)}"
    return ok(f"{version}; {told}" if version else told, version=version, **figures)


def _figures(told: Mapping[str, object]) -> dict[str, Figure]:
    return {name: value for name, value in told.items() if name != "done" and isinstance(value, str | int | float)}
