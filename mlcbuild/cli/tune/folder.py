"""`tune candidates`, and the import of what was measured of them on another machine."""

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
from mlcbuild.runtime.measuring.candidate_folder import (
    FolderContents,
    KernelCandidates,
    digest_of,
    measured_candidates,
    read_contents,
    write_contents,
)
from mlcbuild.tuning.record import Record


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
    of_kernel = {kernel.name: [trial.number for trial in trials if trial.kernel is kernel] for kernel in opened.kernels}
    for kernel in sorted(opened.kernels, key=lambda each: -len(of_kernel[each.name])):
        tried = of_kernel[kernel.name]
        numbers = [number for number in tried if (kernel.name, number) in libraries]
        if numbers and (kernel.name, 0) in libraries:
            kernels.append(KernelCandidates(listed=kernel.listed, text=kernel.text, numbers=tuple(numbers)))
    written = {
        each.library(number): libraries[each.listed.kernel, number] for each in kernels for number in (0, *each.numbers)
    }
    contents = FolderContents(
        platform=opened.platforms[0],
        tools=tools(),
        kernels=tuple(kernels),
        libraries={library: digest_of(data) for library, data in written.items()},
    )
    try:
        (folder / "libraries").mkdir(parents=True, exist_ok=True)
        for library, data in written.items():
            (folder / library).write_bytes(data)
        write_contents(folder, contents)
    except OSError as error:
        raise LocalEnvironmentError(f"{folder} cannot be written: {error.strerror or error}") from error
    count = sum(len(each.numbers) for each in contents.kernels)
    if output is OutputFormat.JSON:
        print_json({"folder": str(folder), "candidates": count, "kernels": len(contents.kernels)})
        return
    print(f"{folder}: {text.plural(count, 'candidate')} of {text.plural(len(contents.kernels), 'kernel')}")


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
