"""Figures as people read them, the same in every room: bytes, transfer rates, short times, long lists."""

from __future__ import annotations

from collections.abc import Sequence

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def byte_count(value: float) -> str:
    """`512 B`, `1.5 kB`, `2 MB`, `18 MB`: powers of 1000; one decimal below 10, unless it is zero."""
    unit = 0
    while round(value) >= 1000 and unit < len(_UNITS) - 1:
        value /= 1000
        unit += 1
    digits = 1 if unit and round(value, 1) < 10 else 0
    return f"{value:.{digits}f}".removesuffix(".0") + f" {_UNITS[unit]}"


def gibibytes(count: int) -> str:
    """`1.5 GiB`, of memory, which is asked for and sold in powers of 1024."""
    return f"{count / (1 << 30):.1f} GiB"


def transfer_rate(size_bytes: int, seconds: float) -> str:
    """`331 MB/s`."""
    return f"{byte_count(size_bytes / max(seconds, 1e-9))}/s"


def duration(seconds: float) -> str:
    """`0.4 ms`, `12 ms`, `1.3 s`."""
    if seconds >= 0.9995:
        return f"{seconds:.1f} s"
    milliseconds = seconds * 1000
    return f"{milliseconds:.1f} ms" if milliseconds < 9.95 else f"{milliseconds:.0f} ms"


def shortened_list(items: Sequence[str], most: int = 8) -> str:
    """`a, b and 97 more`, `a, b, c`: the first items, and how many others there are."""
    left = len(items) - most
    return ", ".join(items[:most]) + (f" and {left:,} more" if left > 0 else "")
