"""The limits of the disk cache: options, variables, or `[cache]` of the user's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mlcbuild.errors import UsageError
from mlcbuild.workspace.units import AGE_ADVICE, SIZE_ADVICE, parse_duration, parse_size

if TYPE_CHECKING:
    from mlcbuild.cache.eviction import Limits

MAX_SIZE_VARIABLE = "MLCBUILD_CACHE_MAX_SIZE"
MAX_AGE_VARIABLE = "MLCBUILD_CACHE_MAX_AGE"


def read_limits(max_size: str, max_age: str, environment: Mapping[str, str]) -> Limits:
    """Each limit from the first source that has it: an option ("" has none), a variable, the user's `[cache]`.

    Raises UsageError for options and variables, WorkspaceErrors for the file.
    """
    from mlcbuild.cache.eviction import Limits
    from mlcbuild.cli.settings.user_file import user_settings

    settings = user_settings(environment)
    size, size_place = (max_size, "--max-size") if max_size else (environment.get(MAX_SIZE_VARIABLE), MAX_SIZE_VARIABLE)
    age, age_place = (max_age, "--max-age") if max_age else (environment.get(MAX_AGE_VARIABLE), MAX_AGE_VARIABLE)
    return Limits(
        max_bytes=read_size(size, place=size_place) if size else settings.max_bytes,
        max_age_seconds=read_age(age, place=age_place) if age else settings.max_age_seconds,
    )


def read_size(text: str, *, place: str) -> int:
    """Bytes, as `parse_size` reads them. Raises UsageError."""
    size = parse_size(text)
    if size is None:
        raise UsageError(f'{place}: "{text}" is not a size', advice=(SIZE_ADVICE,))
    return size


def read_age(text: str, *, place: str) -> float:
    """Seconds, as `parse_duration` reads them. Raises UsageError."""
    age = parse_duration(text)
    if age is None:
        raise UsageError(f'{place}: "{text}" is not an age', advice=(AGE_ADVICE,))
    return age
