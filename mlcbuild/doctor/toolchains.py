"""Toolchains: whether each is installed, by its metadata, and whether it works, in a separate process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlcbuild.doctor.check import Check
from mlcbuild.doctor.children import run_python
from mlcbuild.doctor.finding import Figure, Finding, failed, ok, skipped
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.figures import duration
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.table import every
from mlcbuild.toolchains.toolchain import Toolchain

_MORE_SECONDS = 5.0  # to end the process


def toolchain_checks() -> Sequence[Check]:
    """One check for each toolchain. A toolchain that needs a path is only checked if its trial does not need it."""
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
    """Raises LocalEnvironmentError if a toolchain that mlcbuild needs is not installed."""
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
        return failed(f"{version + ': ' if version else ''}its trial {child.ended}", *toolchain.repair())
    if reason := child.document.get("skipped"):
        return skipped(str(reason))
    figures = _figures(child.document)
    measured = str(child.document.get("done", "tried"))
    if isinstance(seconds := figures.get("seconds"), float):
        measured += f" in {duration(seconds)}"
    return ok(f"{version}; {measured}" if version else measured, version=version, **figures)


def _figures(measured: Mapping[str, object]) -> dict[str, Figure]:
    return {name: value for name, value in measured.items() if name != "done" and isinstance(value, str | int | float)}
