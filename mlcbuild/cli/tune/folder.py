"""`tune candidates`, `tune measure` and the import of what was measured: for machines without compiler and network."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.slow_progress import slow_progress
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.tune.command import TuneRequest, open_tuning
from mlcbuild.cli.tune.plan import spread_trials
from mlcbuild.cli.tune.recording import records_of, tools
from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.runtime.measuring import measurement as forms
from mlcbuild.runtime.measuring.candidate_folder import (
    FolderContents,
    KernelCandidates,
    add_measured,
    measured_candidates,
    read_contents,
    write_contents,
)
from mlcbuild.runtime.measuring.child import measure
from mlcbuild.tuning.record import Outcome, Record


def write_candidates(request: TuneRequest, folder: Path, output: OutputFormat, options: GlobalOptions) -> None:
    """Compile candidates that were never measured, and write them to a folder that is new or empty. Raises
    MlcbuildError."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty", advice=("name a folder that is not there yet",))
    with slow_progress(options) as progress:
        opened = open_tuning(request, options, progress)
        if len(opened.platforms) > 1:
            raise UsageError(
                f"the targets are for {len(opened.platforms)} platforms, and a machine measures those of one",
                advice=("write a folder for the targets of each platform",),
            )
        trials = spread_trials(opened.kernels, opened.records(), opened.trials)
        progress.show_unmeasured(f"compiling {text.plural(len(trials), 'candidate')}")
        libraries = opened.builder.candidate_libraries(trials) if trials else {}
    kernels = []
    for kernel in opened.kernels:
        tried = [trial.number for trial in trials if trial.kernel is kernel]
        numbers = [number for number in tried if (kernel.name, number) in libraries]
        if numbers and (kernel.name, 0) in libraries:
            kernels.append(
                KernelCandidates(listed=kernel.listed, text=kernel.text, sizes=kernel.sizes, numbers=tuple(numbers))
            )
    contents = FolderContents(platform=opened.platforms[0], tools=tools(), kernels=tuple(kernels))
    try:
        (folder / "libraries").mkdir(parents=True, exist_ok=True)
        for each in contents.kernels:
            for number in (0, *each.numbers):
                (folder / each.library(number)).write_bytes(libraries[each.listed.kernel, number])
        write_contents(folder, contents)
    except OSError as error:
        raise LocalEnvironmentError(f"{folder} cannot be written: {error.strerror or error}") from error
    count = sum(len(each.numbers) for each in contents.kernels)
    if output is OutputFormat.JSON:
        print_json({"folder": str(folder), "candidates": count, "kernels": len(contents.kernels)})
        return
    print(f"{folder}: {text.plural(count, 'candidate')} of {text.plural(len(contents.kernels), 'kernel')}")


def measure_folder(folder: Path, *, seconds: float, threads: int, output: OutputFormat, options: GlobalOptions) -> None:
    """Measure the candidates of a folder that were not measured yet. Needs TVM's runtime, and nothing else of a
    workspace. Raises MlcbuildError."""
    contents = read_contents(folder)
    done = {(each.kernel, each.number) for each in measured_candidates(folder)}
    left = [
        (each, number)
        for each in contents.kernels
        for number in each.numbers
        if (each.listed.kernel, number) not in done
    ]
    outcomes = dict.fromkeys((outcome.value for outcome in Outcome), 0)
    with slow_progress(options) as progress:
        for place, (each, number) in enumerate(left):
            progress.show_counted("candidates", place, len(left))
            found = []
            for sizes in each.sizes:
                found.append(
                    measure(
                        folder / each.library(number),
                        folder / each.library(0),
                        kernel=each.listed.kernel,
                        arguments=each.listed.arguments,
                        sizes=sizes,
                        seconds=seconds,
                        threads=threads,
                    )
                )
                if found[-1].outcome != forms.MEASURED:
                    break
            outcomes[found[-1].outcome] += 1
            add_measured(folder, each.listed.kernel, number, found)
    if output is OutputFormat.JSON:
        print_json({"folder": str(folder), "measured": len(left), "known": len(done), "outcomes": outcomes})
        return
    told = ", ".join(f"{count} {name}" for name, count in outcomes.items() if count) or "nothing to measure"
    print(f"{folder}: {told}" + (f"; {len(done)} measured before" if done else ""))


def records_in(folder: Path) -> tuple[Record, ...]:
    """The records of what was measured of a folder. Raises UsageError for a folder without candidates."""
    contents = read_contents(folder)
    kernels = {each.listed.kernel: each.listed for each in contents.kernels}
    return tuple(
        record
        for each in measured_candidates(folder)
        if each.kernel in kernels and each.number < len(kernels[each.kernel].shapes)
        for record in records_of(
            each.measurements,
            kernel=each.kernel,
            rule=kernels[each.kernel].rule,
            shape=kernels[each.kernel].shapes[each.number],
            platform=contents.platform,
            compiled_by=contents.tools,
        )
    )
