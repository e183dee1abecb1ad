"""The tables of a comparison: the same cells for a terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlcbuild.cli.compare.comparison import Case, ComparedBuild, Comparison, fastest
from mlcbuild.cli.output import text
from mlcbuild.figures import byte_count


@dataclass(frozen=True, kw_only=True)
class Table:
    """`left` says how many of the first columns are names; the others are numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int


def tables_of(comparison: Comparison) -> tuple[Table, ...]:
    """What each build is, then how fast it is at each size."""
    builds = Table(
        head=("build", "compiler", "compile s", "no-op ms", "size", "load ms", "peak"),
        rows=tuple(_build_row(build) for build in comparison.builds),
        left=2,
    )
    speeds = Table(
        head=("build", "size", "first ms", "µs", "spread", "per s", "× fastest", "error"),
        rows=tuple(
            _speed_row(build, case, fastest(comparison.builds, size))
            for size in comparison.sizes
            for build in comparison.builds
            for case in build.cases
            if case.size == size and not case.failure
        ),
        left=1,
    )
    return (builds, speeds)


def failures_of(comparison: Comparison) -> Iterator[str]:
    """What did not run, a line each."""
    for build in comparison.builds:
        if build.failure:
            yield f"{build.label}: {_first_line(build.failure)}"
        for case in build.cases:
            if case.failure:
                yield f"{build.label} at {case.size}: {_first_line(case.failure)}"


def title_of(comparison: Comparison) -> str:
    threads, rounds = text.plural(comparison.threads, "thread"), text.plural(comparison.rounds, "round")
    return f"{comparison.label} on {comparison.machine}, {threads}, median of {rounds} in turn"


def as_text(table: Table) -> list[str]:
    widths = [max(map(len, column)) for column in zip(table.head, *table.rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index < table.left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (table.head, *table.rows)
    ]


def as_markdown(comparison: Comparison) -> str:
    lines = [f"{title_of(comparison)}."]
    for table in tables_of(comparison):
        rule = ["---" if index < table.left else "---:" for index in range(len(table.head))]
        lines += ["", *(_markdown_row(row) for row in (table.head, rule, *table.rows))]
    failed = list(failures_of(comparison))
    if failed:
        lines += ["", "What did not run:", "", *(f"- {line}" for line in failed)]
    return "\n".join(lines) + "\n"


def _build_row(build: ComparedBuild) -> tuple[str, ...]:
    return (
        build.label,
        f"{build.compiler} {build.version}",
        "" if build.compile_seconds is None else f"{build.compile_seconds:.2f}",
        "" if build.cached_seconds is None else f"{1000 * build.cached_seconds:.1f}",
        byte_count(build.bytes),
        "" if build.failure else f"{1e3 * build.load_seconds:.1f}",
        "" if build.failure else byte_count(build.peak_bytes),
    )


def _speed_row(build: ComparedBuild, case: Case, best: float) -> tuple[str, ...]:
    return (
        build.label,
        f"{case.size}",
        f"{1e3 * case.first_seconds:.2f}",
        f"{1e6 * case.seconds:,.1f}",
        f"{100 * case.spread:.0f} %",
        f"{case.samples_a_second:,.0f}",
        f"{case.seconds / best:.2f}",
        f"{case.error:.1e}",
    )


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0][:200]
