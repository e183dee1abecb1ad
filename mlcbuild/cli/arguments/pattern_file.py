"""`--target-pattern-file`: patterns of targets in a file, for more of them than a command line can have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcbuild.errors import UsageError


def patterns_in(path: Path) -> list[str]:
    """The patterns, one a line; empty lines and those that begin with `#` are none. Raises UsageError."""
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        raise UsageError(f"--target-pattern-file: {path}: {error.strerror or error}") from None
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def wanted_patterns(given: Sequence[str] | None, file: Path | None, *, command: str) -> tuple[str, ...]:
    """The patterns of a command line and of its file, one of which there has to be. Raises UsageError."""
    patterns = (*(given or ()), *(patterns_in(file) if file else ()))
    if not patterns and not file:
        raise UsageError('missing argument "PATTERN..."', advice=(f"see mlcbuild {command} --help",))
    return patterns
