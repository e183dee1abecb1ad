"""The incremental table: its measurements, and its three formats."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.incremental_place import Build
from benchmarks.incremental_rows import Row

_HEAD = "| change | ran | which | seconds | of cold | of its processors' time | |"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A row, its builds, and the cold builds of its target."""

    row: Row
    builds: tuple[Build, ...]
    cold: tuple[Build, ...]
    unexpected: tuple[str, ...]

    @property
    def seconds(self) -> float:
        return statistics.median(build.seconds for build in self.builds)

    @property
    def share(self) -> float:
        return self.seconds / statistics.mean(build.seconds for build in self.cold)

    @property
    def processor_share(self) -> float:
        """The same of the seconds that processors worked for it: other work on the machine hardly changes it."""
        used = statistics.median(build.processor_seconds for build in self.builds)
        return used / statistics.mean(build.processor_seconds for build in self.cold)


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Every library from an empty cache, and all of them from one."""

    cells: dict[str, Build]
    whole: Build


@dataclass(frozen=True, kw_only=True)
class Table:
    """All that was measured. `cold` has, by target, the builds that shares are of."""

    models: tuple[str, ...]
    rounds: int
    cold: dict[str, tuple[Build, ...]]
    rows: tuple[Measured, ...]
    matrix: Matrix | None


def percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def ran_in_words(ran: dict[str, int]) -> str:
    return ", ".join(f"{count} {mnemonic}" if count > 1 else mnemonic for mnemonic, count in ran.items()) or "–"


def machine() -> str:
    return f"{len(os.sched_getaffinity(0))} cores of {processor()}, Python {platform.python_version()}"


def processor() -> str:
    """The processor's name where Linux tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names and names[0] != "unknown" else platform.machine()


def markdown(table: Table) -> str:
    lines = [
        f"Measured on {machine()}; {'once' if table.rounds == 1 else f'the median of {table.rounds} builds'} a row.",
        "",
    ]
    lines += _markdown_cold(table)
    if table.rows:
        lines += ["", _HEAD, "|---|--:|---|--:|--:|--:|---|"]
        lines += [_markdown_row(measured) for measured in table.rows]
    if table.matrix is not None:
        lines += ["", *_markdown_matrix(table.matrix)]
    return "\n".join(lines)


def _markdown_cold(table: Table) -> list[str]:
    lines = ["| from an empty cache | actions | seconds | seconds of processors |", "|---|--:|--:|--:|"]
    for target, builds in table.cold.items():
        used = ", ".join(f"{build.processor_seconds:.1f}" for build in builds)
        lines.append(f"| `{target}` | {builds[0].actions} | {_each(builds)} | {used} |")
    return lines


def _each(builds: Sequence[Build]) -> str:
    return ", ".join(f"{build.seconds:.1f}" for build in builds)


def _markdown_row(measured: Measured) -> str:
    row, build = measured.row, measured.builds[0]
    notes = [row.note, f"**Not as it should be: {', '.join(measured.unexpected)}.**" if measured.unexpected else ""]
    cells = [
        row.change,
        f"{build.executed} of {build.actions}",
        ran_in_words(build.ran),
        f"{measured.seconds:.1f}",
        percent(measured.share),
        percent(measured.processor_share),
        " ".join(filter(None, notes)),
    ]
    return f"| {' | '.join(cells)} |"


def _markdown_matrix(matrix: Matrix) -> list[str]:
    """A line a cell, their sum, and the whole."""
    cells, whole = matrix.cells, matrix.whole
    executed = sum(cell.executed for cell in cells.values())
    seconds = sum(cell.seconds for cell in cells.values())
    used = sum(cell.processor_seconds for cell in cells.values())
    lines = ["| the matrix | ran | seconds | seconds of processors |", "|---|--:|--:|--:|"]
    lines += [_markdown_cell(f"`{target}` alone", cell) for target, cell in cells.items()]
    lines.append(f"| sum | {executed} | {seconds:.1f} | {used:.1f} |")
    lines.append(_markdown_cell("all at once", whole))
    shares = (whole.executed / executed, whole.seconds / seconds, whole.processor_seconds / used)
    lines.append(f"| share of the sum | {' | '.join(map(percent, shares))} |")
    return lines


def _markdown_cell(name: str, build: Build) -> str:
    return f"| {name} | {build.executed} | {build.seconds:.1f} | {build.processor_seconds:.1f} |"


def text(table: Table) -> str:
    lines = [f"{target:24} cold {_each(builds)}" for target, builds in table.cold.items()]
    for measured in table.rows:
        build = measured.builds[0]
        shares = f"{percent(measured.share):>6} ({percent(measured.processor_share)} of processors' time)"
        counts = f"{build.executed:4} of {build.actions:4}  {measured.seconds:6.1f} s  {shares}"
        lines.append(f"{measured.row.name:24} {counts}  {ran_in_words(build.ran)}")
        lines += [f"  not as it should be: {wrong}" for wrong in measured.unexpected]
    if table.matrix is not None:
        lines += _markdown_matrix(table.matrix)
    return "\n".join(lines)


def document(table: Table) -> dict[str, Any]:
    """The table as a JSON object; `seconds` are those of every build, `share` is of their median."""
    rows = [
        {
            "name": measured.row.name,
            "change": measured.row.change,
            "ran": measured.builds[0].ran,
            "executed": measured.builds[0].executed,
            "actions": measured.builds[0].actions,
            "seconds": [round(build.seconds, 3) for build in measured.builds],
            "share": round(measured.share, 4),
            "processor_share": round(measured.processor_share, 4),
            "unexpected": list(measured.unexpected),
        }
        for measured in table.rows
    ]
    matrix = table.matrix and {
        "cells": {target: _numbers(cell) for target, cell in table.matrix.cells.items()},
        "whole": _numbers(table.matrix.whole),
    }
    cold = {target: [_numbers(build) for build in builds] for target, builds in table.cold.items()}
    return {"machine": machine(), "models": list(table.models), "cold": cold, "rows": rows, "matrix": matrix}


def _numbers(build: Build) -> dict[str, Any]:
    return {
        "ran": build.ran,
        "executed": build.executed,
        "seconds": round(build.seconds, 3),
        "processor_seconds": round(build.processor_seconds, 3),
    }


FORMS: Mapping[str, Callable[[Table], str]] = {
    "markdown": markdown,
    "text": text,
    "json": lambda table: json.dumps(document(table), indent=2),
}
