"""What single changes cost: the actions that run after each, and their time as a share of a cold build.

    python -m benchmarks.incremental [--model NAME]… [--models DIR] [--rounds N] [--output markdown|text|json] [ROW…]

Method. It makes a copy of mlcbuild's code, a workspace and a cache in a scratch folder; nothing of the user's
changes. The first model's library for GPUs is built from an empty cache (cold). For each row, the cache is restored
to the state after that build, a build finds nothing to do, one change is made, and the next build is timed as a whole
command. At the end the cold build is repeated. Shares are of the mean of a target's cold builds, in the same run on
the same machine. The row `matrix` builds every model for GPUs and CPUs, each library from an empty cache, and then
all of them from one.

A row that runs an action which must not run is marked, a row whose build fails is left out, and then the command ends
with 1. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.incremental_place import PROJECT, Build, NotMeasuredError, Place
from benchmarks.incremental_rows import CUDA, ROWS, Row
from benchmarks.incremental_table import FORMS, Matrix, Measured, Table

MATRIX = "matrix"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Measuring:
    """One run: cold builds are done when a row wants one, kept, and done again at the end."""

    def __init__(self, place: Place, rounds: int) -> None:
        self.place = place
        self.rounds = rounds
        self.cold: dict[str, list[Build]] = {}
        self.left_out: list[str] = []

    def table(self, rows: Sequence[Row], *, matrix: bool) -> Table:
        found, cells = [], None
        for row in rows:
            with self.leaving_out(row.name):
                found.append(self.measure(row))
        if matrix:
            with self.leaving_out(MATRIX):
                cells = self.measure_matrix()
        if found:
            self.build_cold(self.named(CUDA))
        cold = {target: tuple(builds) for target, builds in self.cold.items()}
        return Table(
            models=self.place.models,
            rounds=self.rounds,
            cold=cold,
            rows=tuple(self.finished(row, builds, cold) for row, builds in found),
            matrix=cells,
        )

    @contextmanager
    def leaving_out(self, name: str) -> Iterator[None]:
        try:
            yield
        except NotMeasuredError as error:
            say(f"{name} is left out: {error}")
            self.left_out.append(name)

    def named(self, target: str) -> str:
        return target.format(*self.place.models)

    def build_cold(self, target: str) -> Build:
        self.place.forget()
        build = self.place.build(target)
        say(f"//:{target} from an empty cache: {build.executed} ran, {build.seconds:.1f} s")
        self.cold.setdefault(target, []).append(build)
        return build

    def measure(self, row: Row) -> tuple[Row, tuple[Build, ...]]:
        target, warm = self.named(row.target), self.named(row.warm)
        for needed in dict.fromkeys((warm, target)):
            if needed not in self.cold:
                self.build_cold(needed)
                self.place.keep(needed)
        builds = []
        for _ in range(self.rounds):
            self.place.bring_back(warm)
            try:
                build = self.changed(row, target)
            finally:
                self.place.undo()
            say(f"{row.name}: {build.executed} of {build.actions} ran, {build.seconds:.1f} s")
            builds.append(build)
        return row, tuple(builds)

    def changed(self, row: Row, target: str) -> Build:
        if row.edit is None:
            return self.place.build_again(target)
        row.edit(self.place)
        return self.place.build(target)

    def finished(self, row: Row, builds: tuple[Build, ...], cold: dict[str, tuple[Build, ...]]) -> Measured:
        unexpected = dict.fromkeys(wrong for build in builds for wrong in row.unexpected(build.ran))
        return Measured(row=row, builds=builds, cold=cold[self.named(row.target)], unexpected=tuple(unexpected))

    def measure_matrix(self) -> Matrix:
        targets = [f"{model}-{kind}" for kind in ("cuda", "cpu") for model in self.place.models]
        cells = {target: self.build_cold(target) for target in targets}
        self.place.forget()
        whole = self.place.build(*targets)
        say(f"all {len(targets)} from an empty cache: {whole.executed} ran, {whole.seconds:.1f} s")
        return Matrix(cells=cells, whole=whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {row.name: row for row in ROWS}
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(names)}, {MATRIX}; default: all")
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME",
        help="the first is changed, the second is built after it; all are the matrix "
        "(default: llama-3-8b, mistral-7b, tinyllama-1.1b)",
    )
    parser.add_argument(
        "--models", type=Path, default=PROJECT / "models", metavar="DIR", help="where NAME/config.json is"
    )
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="builds a row")
    parser.add_argument("--output", choices=tuple(FORMS), default="text")
    arguments = parser.parse_args()
    models = arguments.model or ["llama-3-8b", "mistral-7b", "tinyllama-1.1b"]
    if len(models) < 2 or arguments.rounds < 1:
        parser.error("at least two models and one round, please")
    wanted = arguments.rows or [*names, MATRIX]
    if unknown := [name for name in wanted if name not in (*names, MATRIX)]:
        parser.error(f"no such row: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(prefix="incremental-") as folder:
        place = Place(Path(folder), models, arguments.models)
        for row in names.values():
            if row.edit is not None:
                row.edit(place)
                place.undo()
        measuring = Measuring(place, arguments.rounds)
        table = measuring.table([row for name, row in names.items() if name in wanted], matrix=MATRIX in wanted)
    print(FORMS[arguments.output](table))
    raise SystemExit(bool(measuring.left_out) or any(measured.unexpected for measured in table.rows))


if __name__ == "__main__":
    main()
