"""The summary of tests, Bazel's with what each measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mlcbuild.cli.output import text
from mlcbuild.cli.output.terminal import Style
from mlcbuild.cli.test.logs import TestFiles
from mlcbuild.cli.test.results import TestOutcome, TestStatus

_WIDTH = 60  # of labels, so that statuses stand below each other
_WITH_LOG = (TestStatus.FAILED, TestStatus.TIMEOUT)


def summary_lines(found: Sequence[TestOutcome], files: TestFiles, *, style: Style) -> Iterator[str]:
    """Two or three lines a test: how it ended, what it measured, and where the log of one that failed lies."""
    width = min(_WIDTH, max((len(each.test.label) for each in found), default=0))
    for each in found:
        yield f"{each.test.label.ljust(width)}  {_status(each, style)}"
        worst = each.worst
        if worst.summary:
            yield f"  {text.printable(worst.summary)}"
        yield from (f"    {line}" for line in worst.detail)
        if each.status in _WITH_LOG:
            yield from (f"  {files.log_path(run.run)}" for run in each.runs if run.status in _WITH_LOG)


def total_line(found: Sequence[TestOutcome], *, skipped: int = 0) -> str:
    """`Executed 2 out of 5 tests: 3 tests pass, 1 fails, 1 was skipped.` `skipped` are not among those found."""
    counts = Counter(each.status for each in found)
    counts[TestStatus.SKIPPED] += skipped
    ran = (TestStatus.PASSED, *_WITH_LOG)
    executed = sum(any(not run.cached and run.status in ran for run in each.runs) for each in found)
    passed = counts[TestStatus.PASSED]
    parts = []
    if passed or not found:
        parts.append(f"{text.plural(passed, 'test')} {'passes' if passed == 1 else 'pass'}")
    for status, one, many in (
        (TestStatus.FAILED, "fails", "fail"),
        (TestStatus.TIMEOUT, "times out", "time out"),
        (TestStatus.FAILED_TO_BUILD, "fails to build", "fail to build"),
        (TestStatus.NO_STATUS, "has no status", "have no status"),
        (TestStatus.SKIPPED, "was skipped", "were skipped"),
    ):
        if count := counts[status]:
            parts.append(f"{count:,} {one if count == 1 else many}")
    return f"Executed {executed:,} out of {text.plural(len(found) + skipped, 'test')}: {', '.join(parts)}."


def _status(each: TestOutcome, style: Style) -> str:
    """`(cached) PASSED`, `FAILED in 1.2s`, `FAILED in 2 out of 3 in 1.2s`."""
    status = each.status
    painted = style.good(status.value) if status is TestStatus.PASSED else style.bad(status.value)
    if status in (TestStatus.SKIPPED, TestStatus.NO_STATUS):
        painted = style.warning(status.value)
    if each.cached:
        return f"(cached) {painted}"
    if status not in (TestStatus.PASSED, *_WITH_LOG):
        return painted
    of = sum(run.status is status for run in each.runs)
    share = f" in {of} out of {len(each.runs)}" if len(each.runs) > 1 and status is not TestStatus.PASSED else ""
    return f"{painted}{share} in {each.seconds:.1f}s"
