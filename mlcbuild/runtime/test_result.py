"""test.json: what a test of a package found, passed or not.

::

    {"test": "perplexity_test", "passed": bool, "summary": "perplexity 12.34, at most 15", "figures": {name: number, …}}

A test whose process crashed, or ran for too long, leaves none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.errors import StageError

Figure = int | float | str


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """`summary` is one line for people: what was measured, and what was asked for. `advice` is printed and not kept."""

    __test__ = False  # pytest takes classes of such names for tests

    test: str  # the rule
    passed: bool
    summary: str
    figures: Mapping[str, Figure] = field(default_factory=dict)
    advice: tuple[str, ...] = ()

    def report(self, path: Path) -> None:
        """Write it, and print the figures. Raises StageError for a test that did not pass, which then fails."""
        figures = {name: _plain(value) for name, value in self.figures.items()}
        document = {"test": self.test, "passed": self.passed, "summary": self.summary, "figures": figures}
        path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        for name, value in figures.items():
            print(f"{name}: {value}")
        print(self.summary, flush=True)
        if not self.passed:
            raise StageError(self.summary, advice=self.advice)


def read_test_result(data: bytes) -> TestResult | None:
    """The result in a test.json; None where there is none."""
    try:
        document = json.loads(data)
        return TestResult(
            test=str(document["test"]),
            passed=bool(document["passed"]),
            summary=str(document["summary"]),
            figures=dict(document["figures"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _plain(value: Figure) -> Figure:
    """JSON has no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
