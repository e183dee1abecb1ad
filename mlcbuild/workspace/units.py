"""Sizes and durations as users write them: `50G`, `4GiB`, `30d`, `10m`."""

from __future__ import annotations

import re

_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]+)?)\s*([KMGTP]?)(i?)B?", re.IGNORECASE)
_AGE = re.compile(r"([0-9]{1,15}(?:\.[0-9]+)?)\s*([smhdw])", re.IGNORECASE)
SIZE_ADVICE = "write 500M, 50G, 1.5T, or 50GiB"
AGE_ADVICE = "write 12h, 30d, or 2w"
DURATION_ADVICE = "write 30s, 10m, or 2h"
_POWERS = "KMGTP"
_LONGEST = 100 * 366 * 86_400.0  # seconds; a clock and a timer can still count them
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def parse_size(text: str) -> int | None:
    """Bytes: `50G` and `50GB` are 50 × 1000³, `50GiB` 50 × 1024³, a number alone is bytes. None if it is not a size."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or (found[3] and not found[2]):
        return None
    power = _POWERS.index(found[2].upper()) + 1 if found[2] else 0
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)


def parse_duration(text: str) -> float | None:
    """Seconds: `90m`, `12h`, `30d`, `2w`, up to a hundred years. None if it is not a duration."""
    found = _AGE.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2].lower()] if found else _LONGEST + 1
    return seconds if seconds <= _LONGEST else None
