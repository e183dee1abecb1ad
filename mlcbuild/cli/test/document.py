"""Tests as JSON: `tests` in what `mlcbuild test --output=json` prints beside the build report."""

from __future__ import annotations

from collections.abc import Sequence

from mlcbuild.cli.test.logs import TestFiles
from mlcbuild.cli.test.results import RunResult, TestOutcome


def test_documents(found: Sequence[TestOutcome], files: TestFiles) -> dict[str, object]:
    """By label: `status`, `cached`, `seconds`, `summary`, `figures`, and the same of each of `runs`."""
    return {
        each.test.label: {
            "rule": each.test.rule,
            "size": each.test.size,
            "tags": list(each.test.tags),
            **_run(each.worst, files),
            "cached": each.cached,
            "seconds": round(each.seconds, 6),
            "runs": [_run(run, files) for run in each.runs],
        }
        for each in found
    }


def _run(run: RunResult, files: TestFiles) -> dict[str, object]:
    return {
        "status": run.status.value,
        "cached": run.cached,
        "seconds": round(run.seconds, 6),
        "summary": "\n".join((run.summary, *run.detail)),
        "figures": dict(run.figures),
        "log": files.log_path(run.run),
    }


test_documents.__test__ = False  # type: ignore[attr-defined]  # pytest takes functions of such names for tests
