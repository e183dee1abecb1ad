"""`mlcbuild log`: the list of builds."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Iterator, Sequence

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.log.listings import SHOWN_DIGITS, build_document, moment, record_directory
from mlcbuild.cli.log.records import BuildRecord, numbered, records, unnumbered
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat, Style

_COUNTED = (
    ("executed_local", "ran here"),
    ("executed_ray", "ran on ray"),
    ("not_cached", "not cached"),
    ("failed", "failed"),
    ("skipped", "skipped"),
    ("remote_hit", "from remote"),
    ("disk_hit", "from disk"),
    ("up_to_date", "up to date"),
)
_ENDINGS = {0: "built", 1: "failed", 8: "interrupted", 10: "not cached"}
_NO_OP = "up to date"
DEFAULT_LIMIT = 20
_INDENT = 5  # columns before what a build did, where it stands below the build

Numbered = tuple[int | None, BuildRecord]


def print_builds(output: OutputFormat, options: GlobalOptions, *, limit: int | None, failed: bool) -> None:
    """Print the builds, newest first: `limit` of those that have a number, 0 for all, with those in between that had
    nothing to do or failed before any action was known. Without a limit all in JSON, else the newest.
    """
    directory = record_directory(options)
    known = records(directory)
    counted = [pair for pair in enumerate(known, start=1) if not failed or pair[1].exit_code]
    most = limit if limit is not None else 0 if output is OutputFormat.JSON else DEFAULT_LIMIT
    shown = counted[: most or None]
    oldest = shown[-1][1].began if len(shown) < len(counted) else 0.0
    others = [each for each in unnumbered(directory) if each.began >= oldest and (each.exit_code or not failed)]
    builds: list[Numbered] = numbered(shown, others)
    if output is OutputFormat.JSON:
        print_json([{"build": number, "no_op": record.is_no_op, **build_document(record)} for number, record in builds])
        return
    if not builds:
        print(
            "no recorded build failed"
            if failed and (known or unnumbered(directory))
            else "no build of this workspace is recorded"
        )
    for line in build_lines(builds, style=options.style(sys.stdout), width=options.width(sys.stdout)):
        print(line)
    if len(shown) < len(counted):
        note_older(len(counted) - len(shown), options)


def note_older(count: int, options: GlobalOptions) -> None:
    left = text.plural(count, "older build")
    options.note(f"{left}: --limit 0 lists all")


def build_lines(builds: Sequence[Numbered], *, style: Style, width: int = 0) -> Iterator[str]:
    """One line a build; what does not fit into `width` columns goes below it. 0 stands for lines of any length.

    Builds in a row that had nothing to do share a line.
    """
    for is_no_op, group in itertools.groupby(builds, key=lambda pair: pair[1].is_no_op):
        rows = list(group)
        for number, record in rows[:1] if is_no_op else rows:
            what = _idle(record, len(rows)) if is_no_op else _failed(record) if record.error else _done(record)
            what = text.printable(what)
            head = f"{number or '-':>3}  {moment(record.began)}  {record.invocation[:SHOWN_DIGITS]}  "
            ended = f"{_NO_OP if is_no_op else ending(record):<11}"
            seconds = f" {text.seconds(record.wall_seconds):>10}"
            fits = not width or text.cell_width(f"{head}{ended}{seconds}  {what}") <= width
            below = [] if fits else textwrap.wrap(what, width - _INDENT, break_long_words=False, break_on_hyphens=False)
            line = f"{head}{painted(ended, record, style)}{seconds}" + (f"  {what}" if fits else "")
            for each in (line, *(f"{'':{_INDENT}}{more}" for more in below)):
                yield style.dim(each) if is_no_op else each


def ending(record: BuildRecord) -> str:
    """How a build ended, in a word or two."""
    return _ENDINGS.get(record.exit_code, f"exit code {record.exit_code}")


def painted(ended: str, record: BuildRecord, style: Style) -> str:
    """`ended` in the colour of the build's exit code."""
    match record.exit_code:
        case 0:
            return ended
        case 8 | 10:
            return style.warning(ended)
        case _:
            return style.error(ended)


def _done(record: BuildRecord) -> str:
    counts = ", ".join(f"{record.counts[status]:,} {word}" for status, word in _COUNTED if record.counts.get(status))
    return f"{_targets(record)}: {counts or 'nothing ended'}"


def _failed(record: BuildRecord) -> str:
    """The first line of what the user was told; the others are in JSON."""
    return f"{_targets(record)}: {record.error.splitlines()[0]}"


def _idle(record: BuildRecord, times: int) -> str:
    return _targets(record) + (f"; {times:,} builds in a row had nothing to do" if times > 1 else "")


def _targets(record: BuildRecord) -> str:
    if not record.first_targets:
        return "no targets"
    more = record.target_count - 1
    return f"{record.first_targets[0]} and {more:,} more" if more else record.first_targets[0]
