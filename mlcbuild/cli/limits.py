"""Sizes and ages as they are written on the command line: `50G`, `30d`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mlcbuild.cache.eviction import Limits
from mlcbuild.errors import UsageError

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGTP]?)(i?)B?", re.IGNORECASE)
_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw])", re.IGNORECASE)
MAX_SIZE_VARIABLE = "MLCBUILD_CACHE_MAX_SIZE"
MAX_AGE_VARIABLE = "MLCBUILD_CACHE_MAX_AGE"
_POWERS = "KMGTP"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def read_limits(max_size: str, max_age: str, environment: Mapping[str, str]) -> Limits:
    """The limits that two options say, or variables where an option is "". Raises UsageError."""
    size, size_place = (max_size, "--max-size") if max_size else (environment.get(MAX_SIZE_VARIABLE), MAX_SIZE_VARIABLE)
    age, age_place = (max_age, "--max-age") if max_age else (environment.get(MAX_AGE_VARIABLE), MAX_AGE_VARIABLE)
    return Limits(
        max_bytes=read_size(size, place=size_place) if size else None,
        max_age_seconds=read_age(age, place=age_place) if age else None,
    )


def read_size(text: str, *, place: str) -> int:
    """Bytes: `50G` and `50GB` are 50 × 1000³, `50GiB` 50 × 1024³, a number alone is bytes. Raises UsageError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or (found[3] and not found[2]):
        raise UsageError(f'{place}: "{text}" is no size', advice=("write 500M, 50G, 1.5T, or 50GiB",))
    power = _POWERS.index(found[2].upper()) + 1 if found[2] else 0
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)


def read_age(text: str, *, place: str) -> float:
    """Seconds: `90m`, `12h`, `30d`, `2w`. Raises UsageError."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f'{place}: "{text}" is no age', advice=("write 12h, 30d, or 2w",))
    return float(found[1]) * _SECONDS[found[2].lower()]
