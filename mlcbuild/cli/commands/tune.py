"""`mlcbuild tune …`: measures kernels with other shapes, and keeps records of what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    ConfigOption,
    DiskCacheOption,
    ExecutorOption,
    JobsOption,
    NoRemoteOption,
    OutputOption,
    Patterns,
    RayAddressOption,
    RemoteOption,
    RemoteUploadOption,
    SetOption,
    global_options,
)
from mlcbuild.cli.output.terminal import OutputFormat

TUNE_EXAMPLES = examples(
    "mlcbuild tune //models:smollm2-135m-cpu               measure the kernels of a library",
    "mlcbuild tune //models/... --trials 200 --jobs 2      200 candidates, compiled two at a time",
    "mlcbuild tune stats                                   what is known of which platform",
    "mlcbuild tune candidates //models:llama-gpu --to out  for a machine with the GPU, and nothing else",
)
TUNE_DEFAULT = "kernels"

TrialsOption = Annotated[
    int | None,
    typer.Option(
        "--trials",
        metavar="N",
        min=1,
        show_default=False,
        help='Measure at most N candidates. Default: what the targets say (tuning = "100 trials"), or 64.',
    ),
]
TimeLimitOption = Annotated[
    float,
    typer.Option(
        "--time-limit", metavar="SECONDS", min=1.0, help="Stop a measurement that takes longer, and record that."
    ),
]


def tune() -> None:
    """Measure kernels with other shapes than their default, and keep records of what came of it.

    `mlcbuild tune PATTERN...` is `mlcbuild tune kernels PATTERN...`. Targets with tuning = "cached" are built with the
    best shapes that there are records of.
    """


def kernels(
    context: typer.Context,
    patterns: Patterns,
    config: ConfigOption = "",
    overrides: SetOption = None,
    trials: TrialsOption = None,
    time_limit: TimeLimitOption = 60.0,
    jobs: JobsOption = None,
    disk_cache: DiskCacheOption = None,
    remote: RemoteOption = "",
    no_remote: NoRemoteOption = False,
    remote_upload: RemoteUploadOption = None,
    executor: ExecutorOption = None,
    ray_address: RayAddressOption = "",
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Measure the kernels of libraries, and record the time of each candidate.

    Candidates are compiled like any kernel, and measured one at a time beside the default shape. Those that crash,
    hang or compute something else are recorded as such. What was measured before, here or by others, is not measured
    again; so Ctrl-C loses nothing.
    """
    from mlcbuild.cli.build.request import BuildRequest
    from mlcbuild.cli.tune.command import TuneRequest
    from mlcbuild.cli.tune.command import tune as run

    build = BuildRequest.of_options(
        patterns,
        config=config,
        overrides=overrides,
        jobs=jobs,
        disk_cache=disk_cache,
        remote=remote,
        no_remote=no_remote,
        executor=executor,
        ray_address=ray_address,
        remote_upload=remote_upload,
    )
    run(TuneRequest(build=build, trials=trials, seconds=time_limit), output, global_options(context))


def stats(context: typer.Context, disk_cache: DiskCacheOption = None, output: OutputOption = OutputFormat.TEXT) -> None:
    """Show what records the disk cache has, and what they choose."""
    from mlcbuild.cli.tune.records import print_stats

    print_stats(disk_cache, output, global_options(context))


def export(
    context: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", show_default=False, help="Where to write them; - is standard output.")
    ],
    platform: Annotated[
        list[str] | None,
        typer.Option("--platform", metavar="NAME", show_default=False, help="Only those of a platform of tune stats."),
    ] = None,
    disk_cache: DiskCacheOption = None,
) -> None:
    """Write records to a file, one a line, as JSON.

    Equal records give equal bytes, so that a file of them can lie in a repository. A release that imports it is built
    with the same shapes everywhere.
    """
    from mlcbuild.cli.tune.records import export_records

    export_records(file, disk_cache, tuple(platform or ()), global_options(context))


def import_(
    context: typer.Context,  # noqa: ARG001
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|DIR...",
            show_default=False,
            help="Files that `tune export` wrote, or folders that `tune measure` has measured.",
        ),
    ],
    disk_cache: DiskCacheOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Add records to those of the disk cache.

    Nothing is replaced: all measurements of a kernel count together. If a file cannot be read, none is added.
    """
    from mlcbuild.cli.tune.records import import_records

    import_records(tuple(paths), disk_cache, output)


def candidates(
    context: typer.Context,
    patterns: Patterns,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", show_default=False, help="The folder to write, which is made.")
    ],
    config: ConfigOption = "",
    overrides: SetOption = None,
    trials: TrialsOption = None,
    jobs: JobsOption = None,
    disk_cache: DiskCacheOption = None,
    remote: RemoteOption = "",
    no_remote: NoRemoteOption = False,
    executor: ExecutorOption = None,
    ray_address: RayAddressOption = "",
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Compile candidates into a folder, for a machine that has the device, and neither compiler nor network.

    There `mlcbuild tune measure DIR` measures them, and here `mlcbuild tune import DIR` takes the records.
    """
    from mlcbuild.cli.build.request import BuildRequest
    from mlcbuild.cli.tune.command import TuneRequest
    from mlcbuild.cli.tune.folder import write_candidates

    build = BuildRequest.of_options(
        patterns,
        config=config,
        overrides=overrides,
        jobs=jobs,
        disk_cache=disk_cache,
        remote=remote,
        no_remote=no_remote,
        executor=executor,
        ray_address=ray_address,
    )
    write_candidates(TuneRequest(build=build, trials=trials), to, output, global_options(context))


def measure(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", show_default=False, help="A folder that `tune candidates` has written."),
    ],
    time_limit: TimeLimitOption = 60.0,
    threads: Annotated[
        int,
        typer.Option(
            "--threads", metavar="N", min=0, show_default=False, help="Threads of a CPU. Default: one for each core."
        ),
    ] = 0,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Measure the candidates of a folder, and write what came of them into it.

    It needs TVM's runtime, and no workspace. Started again, it goes on with what was not measured yet.
    """
    from mlcbuild.cli.tune.measuring import measure_folder

    measure_folder(folder, seconds=time_limit, threads=threads, output=output, options=global_options(context))


TUNE_COMMANDS = (
    (kernels, examples("mlcbuild tune //models:smollm2-135m-cpu", "mlcbuild tune //models/... --trials 200")),
    (stats, examples("mlcbuild tune stats")),
    (export, examples("mlcbuild tune export records.jsonl", "mlcbuild tune export - --platform llvm-x86-64-v3-0c1d2e")),
    (import_, examples("mlcbuild tune import records.jsonl", "mlcbuild tune import out")),
    (candidates, examples("mlcbuild tune candidates //models:llama-gpu --to out --trials 200")),
    (measure, examples("mlcbuild tune measure out")),
)
