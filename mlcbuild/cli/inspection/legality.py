"""`mlcbuild info --legal`: which model family, quantization and kind of platform can be built together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.rules import schemes
from mlcbuild.rules.backend import backends
from mlcbuild.rules.families import families
from mlcbuild.rules.legality import Legality, table

_COLUMNS = ("FAMILY", "QUANTIZATION", "KIND", "LEGAL")


def print_legality(output: OutputFormat) -> None:
    """Print one line a combination; of an illegal one, why."""
    rows = tuple(table(families(), map(schemes.scheme, schemes.NAMES), backends().values()))
    if output is OutputFormat.JSON:
        print_json([asdict(row) for row in rows])
        return
    cells = [_COLUMNS, *((row.family, row.quantization, row.kind, _told(row)) for row in rows)]
    for line in _aligned(cells):
        print(line)


def _told(row: Legality) -> str:
    if not row.is_legal:
        return f"no: {row.note}"
    return f"yes, {row.note}" if row.note else "yes"


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
