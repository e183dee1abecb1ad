"""`mlcbuild run`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.choices import ProgressChoice
from mlcbuild.cli.arguments.completion import complete_pattern
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    BuildReportOption,
    ConfigOption,
    DiskCacheOption,
    EventsOption,
    ExecutorOption,
    JobsOption,
    NoRemoteOption,
    ProfileOption,
    ProgressOption,
    QuietOption,
    RayAddressOption,
    RecacheOption,
    RemoteOption,
    RemoteUploadOption,
    SandboxDebugOption,
    SandboxOption,
    SetOption,
    ShowLogOption,
    VerboseOption,
    WorkersOption,
    global_options,
)

RUN_EXAMPLES = examples(
    'mlcbuild run //models:smollm2-135m-cpu -- --prompt "How are you?"',
    'mlcbuild run //models:smollm2-135m-cpu -- --raw --prompt "Once"',
    "mlcbuild run //models:smollm2-135m-cpu -- --help",
    "mlcbuild run //tools:report -- --verbose out.txt",
)


def run(
    context: typer.Context,
    label: Annotated[
        str,
        typer.Argument(
            metavar="LABEL",
            show_default=False,
            autocompletion=complete_pattern,
            help="One target: //pkg:name or :name.",
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARG...]", show_default=False, help="Arguments for the program."),
    ] = None,
    config: ConfigOption = "",
    overrides: SetOption = None,
    jobs: JobsOption = None,
    build_report: BuildReportOption = None,
    profile: ProfileOption = None,
    events: EventsOption = None,
    disk_cache: DiskCacheOption = None,
    remote: RemoteOption = "",
    no_remote: NoRemoteOption = False,
    remote_upload: RemoteUploadOption = None,
    executor: ExecutorOption = None,
    ray_address: RayAddressOption = "",
    sandbox: SandboxOption = None,
    sandbox_debug: SandboxDebugOption = False,
    workers: WorkersOption = None,
    recache: RecacheOption = False,
    show_log: ShowLogOption = False,
    progress: ProgressOption = ProgressChoice.AUTO,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Build one target and run it.

    A model_package generates text and streams the tokens to standard output. Any other target with one executable
    output is executed in the current directory with the given arguments, and mlcbuild returns its exit code.
    """
    from mlcbuild.cli.build.request import BuildRequest
    from mlcbuild.cli.run.target import build_and_run
    from mlcbuild.cli.settings.execution import ExecutionOptions
    from mlcbuild.cli.settings.remote import RemoteOptions

    request = BuildRequest(
        patterns=(label,),
        configuration=config,
        overrides=tuple(overrides or ()),
        jobs=jobs,
        build_report=build_report,
        profile=profile,
        events=events,
        disk_cache=disk_cache,
        remote=RemoteOptions(address=remote, upload=remote_upload or "", no_remote=no_remote),
        execution=ExecutionOptions(
            executor=executor or "",
            ray_address=ray_address,
            sandbox=sandbox,
            keep_failed=sandbox_debug,
            workers=workers or "",
        ),
        recache=recache,
        show_log=show_log,
        progress=ProgressChoice.QUIET if quiet else progress,
        verbose=verbose,
    )
    return int(build_and_run(request, tuple(arguments or ()), global_options(context)))
