"""The summary of a build in Markdown (`--job-summary FILE`), for the page that GitHub shows of a job.

GitHub takes one MiB for each step, and shows nothing of a longer file. So what does not fit is left out, the least
important first, and a last line says so. The text is appended, since several commands of a step may write one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from mlcbuild.cli.console.action_names import title, without_label
from mlcbuild.cli.console.summary import summary_lines
from mlcbuild.cli.exit_codes import meaning
from mlcbuild.cli.output import text
from mlcbuild.cli.reports.finished_build import FailedAction, FinishedBuild, Outcome
from mlcbuild.figures import byte_count

MOST_BYTES = 1024 * 1024
_MARGIN = 4 * 1024  # for what the runner adds
_MOST_ROWS, _MOST_SLOWEST, _MOST_FAILURES, _MOST_NOTES = 500, 10, 20, 10
_LOG_LINES, _LOG_CHARACTERS = 50, 16_000
_LEFT_OUT = "_More does not fit into this summary: the log of the job has the rest._\n"
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#&])")


def append_job_summary(path: Path, build: FinishedBuild) -> None:
    """Append the summary to a file, within GitHub's limit for the whole file. Raises OSError."""
    with path.open("ab") as stream:
        there = stream.tell()
        made = job_summary(build, most_bytes=MOST_BYTES - _MARGIN - there)
        if made:
            stream.write((("\n" if there else "") + made).encode("utf-8", "backslashreplace"))


def job_summary(build: FinishedBuild, *, most_bytes: int = MOST_BYTES) -> str:
    """The summary, with as many of its sections as fit; "" where not even the first one does."""
    room = most_bytes - len(_LEFT_OUT) - 1
    taken: list[str] = []
    for section in _sections(build):
        size = len(section.encode("utf-8", "backslashreplace")) + 1
        if size > room:
            return "\n".join([*taken, _LEFT_OUT]) if taken else ""
        room -= size
        taken.append(section)
    return "\n".join(taken)


def _sections(build: FinishedBuild) -> Iterator[str]:
    """The most important first."""
    yield f"### mlcbuild: {_outcome(build)}\n\n{_code(f'mlcbuild {build.command}')}\n"
    if build.finished is not None:
        shown = summary_lines(build.finished, wall_seconds=build.wall_seconds, remote=build.remote)
        yield "\n".join(f"{_plain(line)}  " for line in shown) + "\n"
    if build.errors:
        yield _fenced("\n".join(f"{e.location}: {e.whole}" if e.location else e.whole for e in build.errors))
    yield from _targets(build)
    yield from _failures(build)
    if build.notices:
        yield "#### Notes\n\n" + "".join(f"- {_plain(note)}\n" for note in build.notices[:_MOST_NOTES])
    if build.ran:
        yield _slowest(build)
    if build.skipped:
        listed = [f"- {_code(label)}: {_plain(reason)}\n" for label, reason in build.skipped.items()]
        yield f"<details><summary>Skipped</summary>\n\n{''.join(listed)}\n</details>\n"


def _outcome(build: FinishedBuild) -> str:
    counted = [
        f"{build.count(outcome):,} {outcome.value}"
        for outcome in (Outcome.FAILED, Outcome.NOT_CACHED, Outcome.NOT_BUILT, Outcome.BUILT)
        if build.count(outcome)
    ]
    if build.skipped:
        counted.append(f"{len(build.skipped):,} skipped")
    words = ", ".join(counted) or "no target was built"
    return words if not build.exit_code else f"{words} (exit code {build.exit_code:d}: {meaning(build.exit_code)})"


def _targets(build: FinishedBuild) -> Iterator[str]:
    rows = [
        (
            _cell(target.label),
            target.outcome.value if target.outcome is Outcome.BUILT else f"**{target.outcome.value}**",
            f"{target.total.ran:,}",
            f"{target.up_to_date:,}",
            f"{target.from_disk:,}",
            f"{target.from_remote:,}",
            text.seconds(target.total.seconds),
        )
        for target in build.targets[:_MOST_ROWS]
    ]
    if rows:
        head = ("target", "outcome", "ran", "up to date", "from disk", "from remote", "time")
        more = len(build.targets) - len(rows)
        yield _table(head, rows, right=5) + (f"\n… and {text.plural(more, 'more target')}\n" if more else "")


def _failures(build: FinishedBuild) -> Iterator[str]:
    failed = [each for each in build.failures if each.words == "failed"]
    not_cached = [each for each in build.failures if each.words != "failed"]
    for each in failed[:_MOST_FAILURES]:
        log = each.log_tail(lines=_LOG_LINES, characters=_LOG_CHARACTERS)
        yield f"#### {_code(each.title)} failed\n\n{_fenced(each.message)}" + (f"\n{_fenced(log)}" if log else "")
    if len(failed) > _MOST_FAILURES:
        yield f"… and {text.plural(len(failed) - _MOST_FAILURES, 'more failed action')}\n"
    if not_cached:
        yield f"#### Without a cached result\n\n{_listed(not_cached)}"


def _listed(failed: Sequence[FailedAction]) -> str:
    lines = [f"- {_code(each.title)}: {_plain(each.message)}\n" for each in failed[:_MOST_ROWS]]
    more = len(failed) - len(lines)
    return "".join([*lines, *([f"- … and {more:,} more\n"] if more else [])])


def _slowest(build: FinishedBuild) -> str:
    rows = [
        (
            _cell(without_label(title(event))),
            _cell(event.owner),
            text.seconds(event.seconds),
            byte_count(event.peak_bytes) if event.peak_bytes else "",
        )
        for event in build.ran[:_MOST_SLOWEST]
    ]
    table = _table(("action", "target", "time", "memory"), rows, right=2)
    return f"<details><summary>Slowest actions</summary>\n\n{table}\n</details>\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: int) -> str:
    """`right` is the number of the last columns, which have figures."""
    rule = ["---"] * (len(head) - right) + ["--:"] * right
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *rows))


def _cell(value: str) -> str:
    """A code span in a table, whose cells end at a `|` even there."""
    return _code(value).replace("|", "\\|")


def _code(value: str) -> str:
    """A code span, whatever `value` has in it."""
    shown = text.printable(value).replace("\n", " ")
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    marks, space = "`" * (longest + 1), " " if longest else ""
    return f"{marks}{space}{shown}{space}{marks}"


def _plain(value: str) -> str:
    return _SPECIAL.sub(r"\\\1", text.printable(value).replace("\n", " "))


def _fenced(value: str) -> str:
    """A block of code with a fence that is longer than any in it."""
    longest = max((len(run) for run in re.findall("`{3,}", value)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text.printable(value)}\n{fence}\n"
