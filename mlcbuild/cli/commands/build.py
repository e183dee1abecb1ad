"""`mlcbuild build`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from mlcbuild.cli.arguments.choices import AnnotationsChoice, ProgressChoice
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    RECORD_DIRECTORY,
    STATE_DIRECTORY,
    AnnotationsOption,
    BuildReportOption,
    CodeQualityOption,
    ConfigOption,
    DiskCacheOption,
    DryRunOption,
    EventsOption,
    ExecutorOption,
    FromCacheOnlyOption,
    JobsOption,
    JobSummaryOption,
    JunitOption,
    KeepGoingOption,
    NoRemoteOption,
    OptionalPatterns,
    OutputOption,
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
    ShardOption,
    ShowLogOption,
    TargetPatternFileOption,
    TimingsOption,
    VerboseOption,
    WorkersOption,
    global_options,
)
from mlcbuild.cli.arguments.pattern_file import wanted_patterns
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.errors import UsageError

BUILD_EXAMPLES = examples(
    "mlcbuild build //models:smollm2-135m-cpu         one target",
    "mlcbuild build //models/... --keep-going         every target below models/ that can be built",
    "mlcbuild build -- //models/... -//models:big     all but one",
    "mlcbuild build :all --config release -j 8        this directory's targets, 8 actions at a time",
    "mlcbuild build //models/... --dry-run            what would run, and why",
    "mlcbuild build --target-pattern-file targets.txt  the targets of a file, one a line",
    "mlcbuild build //models/... --shard 1/4          a quarter of the targets, for one of four machines",
)


def build(
    context: typer.Context,
    patterns: OptionalPatterns = None,
    target_pattern_file: TargetPatternFileOption = None,
    config: ConfigOption = "",
    overrides: SetOption = None,
    shard: ShardOption = "",
    timings: TimingsOption = None,
    jobs: JobsOption = None,
    keep_going: KeepGoingOption = False,
    build_report: BuildReportOption = None,
    profile: ProfileOption = None,
    events: EventsOption = None,
    junit: JunitOption = None,
    job_summary: JobSummaryOption = None,
    code_quality: CodeQualityOption = None,
    annotations: AnnotationsOption = AnnotationsChoice.AUTO,
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
    dry_run: DryRunOption = False,
    from_cache_only: FromCacheOnlyOption = False,
    output: OutputOption = OutputFormat.TEXT,
    show_log: ShowLogOption = False,
    progress: ProgressOption = ProgressChoice.AUTO,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    check_determinism: Annotated[
        bool,
        typer.Option(
            "--check-determinism",
            help="Run each action twice in different environments, without cached results; fail where outputs differ.",
        ),
    ] = False,
) -> int:
    """Build targets and print the paths of their outputs.

    Outputs are placed under mlcbuild-out/CONFIGURATION/PACKAGE/TARGET/. --output=json prints the build report
    instead. Ctrl-C ends the build; the results of finished actions stay in the cache.
    """
    options = global_options(context)
    wanted = wanted_patterns(patterns, target_pattern_file, command="build")
    if (dry_run or from_cache_only) and (recache or check_determinism):
        only_looks, runs = (
            "--dry-run" if dry_run else "--from-cache-only",
            "--recache" if recache else "--check-determinism",
        )
        raise UsageError(f"{only_looks} runs nothing, and {runs} runs every action: give one of them")
    reports = {
        "--build-report": build_report,
        "--profile": profile,
        "--events": events,
        "--junit": junit,
        "--job-summary": job_summary,
        "--code-quality": code_quality,
    }
    if timings and not shard:
        raise UsageError("--timings splits targets into parts: give --shard as well")
    if dry_run:
        for option, given in reports.items():
            if given:
                raise UsageError(f"--dry-run builds nothing, so there is nothing to write for {option}")
        from mlcbuild.cli.build.dry_run import DryRun, print_dry_run
        from mlcbuild.cli.settings.remote import RemoteOptions

        asked = DryRun(
            patterns=wanted,
            configuration=config,
            overrides=tuple(overrides or ()),
            disk_cache=disk_cache,
            remote=RemoteOptions(address=remote, upload=remote_upload or "", no_remote=no_remote),
            shard=shard,
            timings=tuple(timings or ()),
            verbose=verbose,
        )
        return int(print_dry_run(asked, output, options))
    if output is OutputFormat.TEXT and not (any(reports.values()) or check_determinism or recache):
        from mlcbuild.cli.build.no_op_check import current_build, print_no_op, request_text, without_credentials

        text = request_text(
            wanted,
            directory=options.directory,
            environment=options.environment,
            configuration=config,
            overrides=tuple(overrides or ()),
            disk_cache=disk_cache,
            remote=(remote, remote_upload or "", no_remote),
            shard=shard,
            timings=timings or (),
        )
        if current := current_build(text, directory=options.directory, state_directory=STATE_DIRECTORY):
            from mlcbuild.cli.log.no_op_builds import append_no_op

            found, root = current
            print_no_op(found, options, quiet=quiet or progress is ProgressChoice.QUIET)
            append_no_op(
                root / STATE_DIRECTORY / RECORD_DIRECTORY,
                began=time.time() - options.elapsed(),
                arguments=[without_credentials(argument) for argument in options.arguments],
                targets=found.targets,
                actions=found.actions,
                wall_seconds=options.elapsed(),
            )
            return 0
    from mlcbuild.cli.build.request import BuildRequest
    from mlcbuild.cli.build.session import run_build
    from mlcbuild.cli.reports.ci_reports import CiReports
    from mlcbuild.cli.settings.execution import ExecutionOptions
    from mlcbuild.cli.settings.remote import RemoteOptions

    request = BuildRequest(
        patterns=wanted,
        configuration=config,
        overrides=tuple(overrides or ()),
        jobs=jobs,
        keep_going=keep_going,
        check_determinism=check_determinism,
        build_report=build_report,
        profile=profile,
        events=events,
        ci=CiReports(junit=junit, job_summary=job_summary, code_quality=code_quality, annotations=annotations),
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
        shard=shard,
        timings=tuple(timings or ()),
        from_cache_only=from_cache_only,
        show_log=show_log,
        progress=ProgressChoice.QUIET if quiet else progress,
        verbose=verbose,
    )
    outcome = run_build(request, options)
    if output is OutputFormat.JSON:
        print_json(outcome.report)
    else:
        for path in outcome.paths:
            print(path)
    return int(outcome.exit_code)
