"""Sizes and ages as people write them, `50G` and `30d`, and which of them limit the disk cache."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mlcbuild.errors import UsageError

if TYPE_CHECKING:
    from mlcbuild.cache.eviction import Limits

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGTP]?)(i?)B?", re.IGNORECASE)
_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw])", re.IGNORECASE)
MAX_SIZE_VARIABLE = "MLCBUILD_CACHE_MAX_SIZE"
MAX_AGE_VARIABLE = "MLCBUILD_CACHE_MAX_AGE"
SIZE_ADVICE = "write 500M, 50G, 1.5T, or 50GiB"
AGE_ADVICE = "write 12h, 30d, or 2w"
_POWERS = "KMGTP"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def read_limits(max_size: str, max_age: str, environment: Mapping[str, str]) -> Limits:
    """Each limit for itself, the first of these that says it: an option ("" says nothing), a variable, `[cache]` of the
    user's settings. Raises UsageError for the former two, WorkspaceErrors for the last.
    """
    from mlcbuild.cache.eviction import Limits
    from mlcbuild.cli.user_settings import read_user_settings, user_settings_file

    settings = read_user_settings(user_settings_file(environment))
    size, size_place = (max_size, "--max-size") if max_size else (environment.get(MAX_SIZE_VARIABLE), MAX_SIZE_VARIABLE)
    age, age_place = (max_age, "--max-age") if max_age else (environment.get(MAX_AGE_VARIABLE), MAX_AGE_VARIABLE)
    return Limits(
        max_bytes=read_size(size, place=size_place) if size else settings.max_bytes,
        max_age_seconds=read_age(age, place=age_place) if age else settings.max_age_seconds,
    )


def read_size(text: str, *, place: str) -> int:
    """Bytes, as `size_of` reads them. Raises UsageError."""
    size = size_of(text)
    if size is None:
        raise UsageError(f'{place}: "{text}" is no size', advice=(SIZE_ADVICE,))
    return size


def read_age(text: str, *, place: str) -> float:
    """Seconds, as `age_of` reads them. Raises UsageError."""
    age = age_of(text)
    if age is None:
        raise UsageError(f'{place}: "{text}" is no age', advice=(AGE_ADVICE,))
    return age


def size_of(text: str) -> int | None:
    """Bytes: `50G` and `50GB` are 50 × 1000³, `50GiB` 50 × 1024³, a number alone is bytes. None for what is no size."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or (found[3] and not found[2]):
        return None
    power = _POWERS.index(found[2].upper()) + 1 if found[2] else 0
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)


def age_of(text: str) -> float | None:
    """Seconds: `90m`, `12h`, `30d`, `2w`. None for what is no age."""
    found = _AGE.fullmatch(text.strip())
    return float(found[1]) * _SECONDS[found[2].lower()] if found else None
