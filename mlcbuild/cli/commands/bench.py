"""`mlcbuild bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcbuild.cli.arguments.choices import ProgressChoice
from mlcbuild.cli.arguments.completion import complete_pattern
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    ConfigOption,
    DiskCacheOption,
    ExecutorOption,
    JobsOption,
    NoRemoteOption,
    OutputOption,
    ProgressOption,
    RayAddressOption,
    RemoteOption,
    SetOption,
    global_options,
)
from mlcbuild.cli.output.terminal import OutputFormat

BENCH_EXAMPLES = examples(
    "mlcbuild bench //models:smollm2-135m-cpu",
    "mlcbuild bench //models:llama-gpu --batch 1,16 --context 1000 --svg roof.svg",
    "mlcbuild bench //models:llama-tuned //models:llama --no-kernels",
    "mlcbuild bench dist/llama --prompt 512,2048 --no-kernels --output json",
)


def bench(
    context: typer.Context,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="LABEL-OR-PATH...",
            show_default=False,
            autocompletion=complete_pattern,
            help="A model_package or model_library, //pkg:name or :name; a package's folder; or a library file. "
            "Several are measured in turn.",
        ),
    ],
    batch: Annotated[str, typer.Option("--batch", metavar="N,N", help="Sequences at a time.")] = "1",
    prompt: Annotated[str, typer.Option("--prompt", metavar="N,N", help="Tokens of prompts to read.")] = "128",
    before: Annotated[
        int, typer.Option("--context", metavar="N", min=0, help="Tokens that sequences have before they go on.")
    ] = 128,
    tokens: Annotated[
        int, typer.Option("--tokens", metavar="N", min=0, help="Steps of decoding; 0: prompts alone.")
    ] = 32,
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", min=1, help="How often a prompt is read.")] = 5,
    threads: Annotated[
        int, typer.Option("--threads", metavar="N", min=0, help="Threads on a CPU; 0: one for each core.")
    ] = 0,
    kernels: Annotated[
        bool, typer.Option("--kernels/--no-kernels", help="Tell where the time goes, call by call.")
    ] = True,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", show_default=False, help="Write a roofline chart of the kernels."),
    ] = None,
    config: ConfigOption = "",
    overrides: SetOption = None,
    jobs: JobsOption = None,
    disk_cache: DiskCacheOption = None,
    remote: RemoteOption = "",
    no_remote: NoRemoteOption = False,
    executor: ExecutorOption = None,
    ray_address: RayAddressOption = "",
    progress: ProgressOption = ProgressChoice.AUTO,
    output: OutputOption = OutputFormat.TEXT,
) -> int:
    """Measure how many tokens a second a model reads and writes, and which kernels take the time.

    A target is built first. A library without weights gets random ones. Prompts are read at once, and sequences that
    have a context go on token by token; the median of the rounds counts, from tokens to the next tokens. Of several
    models, each is told as a share of the first one's tokens a second.
    """
    from mlcbuild.cli.bench.command import BenchOptions, numbers
    from mlcbuild.cli.bench.command import bench as run
    from mlcbuild.cli.bench.subject import is_label, subject_of_path, subjects_of_labels
    from mlcbuild.cli.build.request import BuildRequest
    from mlcbuild.cli.exit_codes import ExitCode
    from mlcbuild.errors import UsageError

    if svg is not None and not svg.absolute().parent.is_dir():
        raise UsageError(f"--svg: there is no directory {svg.parent}")  # told before minutes of measuring
    given = BenchOptions(
        batches=numbers(batch, option="--batch"),
        prompts=numbers(prompt, option="--prompt"),
        context=before,
        tokens=tokens,
        rounds=rounds,
        threads=threads,
        kernels=kernels,
        svg=svg,
    )
    options = global_options(context)
    paths = [options.directory / target for target in targets if not is_label(target)]
    labels = [target for target in targets if is_label(target)]
    subjects = [subject_of_path(path) for path in paths]
    if labels:
        request = BuildRequest.of_options(
            labels,
            config=config,
            overrides=overrides,
            jobs=jobs,
            disk_cache=disk_cache,
            remote=remote,
            no_remote=no_remote,
            executor=executor,
            ray_address=ray_address,
            progress=progress,
        )
        built = subjects_of_labels(request, options)
        if isinstance(built, ExitCode):
            return int(built)
        subjects = [*built, *subjects] if is_label(targets[0]) else [*subjects, *built]
    run(subjects, given, output, options)
    return int(ExitCode.OK)
