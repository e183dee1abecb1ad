"""Which records can be compared with today's kernels: those of the versions that the rules have today.

A record is a time beside that of the default shape, at certain sizes. A rule whose default or sizes change gets another
version, and so does one whose kernels another rule schedules from now on; its older records count no more: they choose
nothing, and spare no trial. Records stay where they are; an older mlcbuild that shares them goes on with its own.
"""

from __future__ import annotations

from collections.abc import Mapping

# Those of the compiler's rules (`ShapedRule.version`) that are not 1. A build reads no code of the compiler.
VERSIONS: Mapping[str, int] = {
    "cpu.gemv": 2,
    "cpu.matmul": 2,
    "cuda.gemv": 2,
    "cuda.matmul": 3,
    "cuda.paged_decode": 2,
}


def is_current(word: str) -> bool:
    """Whether records whose rule is this word (`ShapedRule.word`) can be compared with today's kernels."""
    name, _, version = word.partition(":")
    return (version or "1") == str(VERSIONS.get(name, 1))
