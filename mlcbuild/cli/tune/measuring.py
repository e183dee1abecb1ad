"""`tune measure`: measures a folder of candidates. It imports nothing that reads workspaces, compiles or connects.

Nothing else measures on the machine meanwhile, nor does another machine that shares the folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.slow_progress import slow_progress
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.errors import LocalEnvironmentError, MlcbuildError, StageError
from mlcbuild.execution.measuring_lock import measuring_here, measuring_in
from mlcbuild.runtime.measuring.candidate_folder import (
    FolderContents,
    KernelCandidates,
    add_measured,
    check_libraries,
    measured_candidates,
    read_contents,
)
from mlcbuild.runtime.measuring.child import measure
from mlcbuild.runtime.measuring.measurement import Measurement
from mlcbuild.tuning.record import Outcome


def measure_folder(folder: Path, *, seconds: float, threads: int, output: OutputFormat, options: GlobalOptions) -> None:
    """Measure the candidates of a folder that were not measured yet. Needs TVM's runtime, and nothing else of a
    workspace. Raises MlcbuildError."""
    contents = read_contents(folder)
    check_libraries(folder, contents)
    with (
        measuring_here(waits=options.note),
        measuring_in(folder, waits=options.note),
    ):
        known, outcomes = _measure_left(contents, folder, seconds=seconds, threads=threads, options=options)
    if output is OutputFormat.JSON:
        total = sum(outcomes.values())
        print_json({"folder": str(folder), "measured": total, "known": known, "outcomes": outcomes})
        return
    told = ", ".join(f"{count} {name}" for name, count in outcomes.items() if count) or "nothing to measure"
    print(f"{folder}: {told}" + (f"; {known} measured before" if known else ""))


def _measure_left(
    contents: FolderContents, folder: Path, *, seconds: float, threads: int, options: GlobalOptions
) -> tuple[int, dict[str, int]]:
    """How many were measured before, and how many came to which outcome now. Where a kernel or a candidate cannot be
    measured on this machine, the others are, and then the first error is raised."""
    done = {(each.kernel, each.number) for each in measured_candidates(folder)}
    left = [
        (each, [number for number in each.numbers if (each.listed.kernel, number) not in done])
        for each in contents.kernels
    ]
    total = sum(len(numbers) for _, numbers in left)
    outcomes = dict.fromkeys((outcome.value for outcome in Outcome), 0)
    errors: list[MlcbuildError] = []

    def measure_of(
        each: KernelCandidates, numbers: list[int]
    ) -> Iterator[tuple[Measurement, ...] | LocalEnvironmentError]:
        return measure(
            [folder / each.library(number) for number in numbers],
            folder / each.library(0),
            kernel=each.listed.kernel,
            arguments=each.listed.arguments,
            sizes=each.listed.sizes,
            seconds=seconds,
            threads=threads,
        )

    with slow_progress(options) as progress:
        progress.show_counted("candidates", 0, total)
        for each, numbers in left:
            answers = measure_of(each, numbers)
            try:
                for number, found in zip(numbers, answers, strict=True):
                    if isinstance(found, LocalEnvironmentError):
                        errors.append(found)
                        continue
                    outcomes[found[-1].outcome] += 1
                    add_measured(folder, each.listed.kernel, number, found)
                    progress.show_counted("candidates", sum(outcomes.values()), total)
            except (LocalEnvironmentError, StageError) as error:
                errors.append(error)
    if errors:
        raise errors[0]
    return len(done), outcomes
