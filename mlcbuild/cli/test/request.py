"""What the command line says of tests."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mlcbuild.cli.arguments.choices import TestOutput
from mlcbuild.errors import UsageError


class NoTestsError(UsageError):
    """No target that the patterns match is a test, or filters leave none."""


@dataclass(frozen=True, kw_only=True)
class Filter:
    """`a,b,-c`: a test has a or b, and not c. Without words to include, all are."""

    included: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()

    @staticmethod
    def parse(option: str, written: str, *, known: Sequence[str] = ()) -> Filter:
        """Raises UsageError for a word that is not known, where these are given."""
        words = [word.strip() for word in written.split(",") if word.strip()]
        for word in words:
            if known and word.removeprefix("-") not in known:
                raise UsageError(f'{option}: "{word.removeprefix("-")}" is none of {", ".join(known)}')
        return Filter(
            included=frozenset(word for word in words if not word.startswith("-")),
            excluded=frozenset(word[1:] for word in words if word.startswith("-")),
        )

    def takes(self, words: Collection[str]) -> bool:
        return not self.excluded.intersection(words) and (not self.included or bool(self.included.intersection(words)))


@dataclass(frozen=True, kw_only=True)
class TestRequest:
    """Which tests run, how often, and what is told of them. `timeout_seconds` 0: what each target says.

    With `skips_incompatible` a test that is named is skipped where one that only a wildcard matches is. With
    `builds_tests_only` other targets are built only if tests need them, also if they are named.
    """

    __test__ = False

    tags: Filter = Filter()
    sizes: Filter = Filter()
    runs: int = 1
    uses_cached: bool = True
    skips_incompatible: bool = False
    builds_tests_only: bool = False
    timeout_seconds: float = 0.0
    output: TestOutput = TestOutput.SUMMARY
