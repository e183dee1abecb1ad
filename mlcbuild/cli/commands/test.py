"""`mlcbuild test`."""

# ruff: noqa: PT028  The command is no test function.

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mlcbuild.cli.arguments.choices import AnnotationsChoice, ProgressChoice, TestOutput
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    AnnotationsOption,
    BuildReportOption,
    ConfigOption,
    DiskCacheOption,
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
    RemoteOption,
    RemoteUploadOption,
    SandboxDebugOption,
    SandboxOption,
    SetOption,
    ShardOption,
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

TEST_EXAMPLES = examples(
    "mlcbuild test //models/...                       every test below models/",
    "mlcbuild test //models:perplexity --test-output=errors  one, with its log if it fails",
    "mlcbuild test //... --test-tag-filters=-gpu      all but those with the tag gpu",
    "mlcbuild test :answers --runs-per-test 10        ten times each, never from a cache",
    "mlcbuild test //... --junit junit.xml            a test case for each, for a CI system",
)


def test(
    context: typer.Context,
    patterns: OptionalPatterns = None,
    target_pattern_file: TargetPatternFileOption = None,
    config: ConfigOption = "",
    overrides: SetOption = None,
    test_tag_filters: Annotated[
        str,
        typer.Option(
            "--test-tag-filters",
            metavar="TAG,-TAG",
            show_default=False,
            help="Run tests that have one of these tags, and none of those after a minus.",
        ),
    ] = "",
    test_size_filters: Annotated[
        str,
        typer.Option(
            "--test-size-filters",
            metavar="SIZE,-SIZE",
            show_default=False,
            help="The same by size: small, medium, large, enormous.",
        ),
    ] = "",
    test_output: Annotated[
        TestOutput,
        typer.Option(
            "--test-output",
            metavar="summary|errors|all",
            show_default=False,
            help="Print the logs of no test, of those that fail, or of all. Default: summary.",
        ),
    ] = TestOutput.SUMMARY,
    cache_test_results: Annotated[
        bool,
        typer.Option(
            "--cache-test-results/--no-cache-test-results",
            show_default=False,
            help="Take the result of a test that passed from a cache, or run every test. Default: take it.",
        ),
    ] = True,
    runs_per_test: Annotated[
        int,
        typer.Option(
            "--runs-per-test",
            metavar="N",
            min=1,
            max=1000,
            show_default=False,
            help="Run each test N times, never from a cache; it passes if all its runs do.",
        ),
    ] = 1,
    test_timeout: Annotated[
        float,
        typer.Option(
            "--test-timeout",
            metavar="SECONDS",
            min=0,
            show_default=False,
            help="How long a test may take, whatever its target says.",
        ),
    ] = 0.0,
    build_tests_only: Annotated[
        bool,
        typer.Option(
            "--build-tests-only",
            show_default=False,
            help="Build other targets only if tests need them, also if their labels are given.",
        ),
    ] = False,
    skip_incompatible: Annotated[
        bool,
        typer.Option(
            "--skip-incompatible-explicit-targets",
            show_default=False,
            help="Skip tests that cannot be built or run here also if their labels are given.",
        ),
    ] = False,
    shard: ShardOption = "",
    timings: TimingsOption = None,
    jobs: JobsOption = None,
    keep_going: KeepGoingOption = False,
    build_report: BuildReportOption = None,
    profile: ProfileOption = None,
    events: EventsOption = None,
    junit: JunitOption = None,
    job_summary: JobSummaryOption = None,
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
    from_cache_only: FromCacheOnlyOption = False,
    output: OutputOption = OutputFormat.TEXT,
    progress: ProgressOption = ProgressChoice.AUTO,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Build and run tests: targets of rules such as perplexity_test.

    A test that passed is run again only if something of it has changed; one that failed is run each time. A failed test
    ends no others. Logs are under .mlcbuild/testlogs/. Exit codes are Bazel's: 3 if a test failed, 4 if there is none.
    """
    options = global_options(context)
    wanted = wanted_patterns(patterns, target_pattern_file, command="test")
    if timings and not shard:
        raise UsageError("--timings splits targets into parts: give --shard as well")
    from mlcbuild.cli.build.request import BuildRequest
    from mlcbuild.cli.build.session import run_build
    from mlcbuild.cli.reports.ci_reports import CiReports
    from mlcbuild.cli.settings.execution import ExecutionOptions
    from mlcbuild.cli.settings.remote import RemoteOptions
    from mlcbuild.cli.test.request import Filter, TestRequest
    from mlcbuild.rules.tested import SIZES

    request = BuildRequest(
        patterns=wanted,
        configuration=config,
        overrides=tuple(overrides or ()),
        jobs=jobs,
        keep_going=keep_going,
        build_report=build_report,
        profile=profile,
        events=events,
        ci=CiReports(junit=junit, job_summary=job_summary, annotations=annotations),
        disk_cache=disk_cache,
        remote=RemoteOptions(address=remote, upload=remote_upload or "", no_remote=no_remote),
        execution=ExecutionOptions(
            executor=executor or "",
            ray_address=ray_address,
            sandbox=sandbox,
            keep_failed=sandbox_debug,
            workers=workers or "",
        ),
        shard=shard,
        timings=tuple(timings or ()),
        from_cache_only=from_cache_only,
        progress=ProgressChoice.QUIET if quiet else progress,
        verbose=verbose,
        tests=TestRequest(
            tags=Filter.parse("--test-tag-filters", test_tag_filters),
            sizes=Filter.parse("--test-size-filters", test_size_filters, known=SIZES),
            runs=runs_per_test,
            uses_cached=cache_test_results,
            skips_incompatible=skip_incompatible,
            builds_tests_only=build_tests_only,
            timeout_seconds=test_timeout,
            output=test_output,
        ),
    )
    outcome = run_build(request, options)
    assert outcome.tests is not None
    if output is OutputFormat.JSON:
        print_json({**outcome.report, "tests": outcome.tests.document()})
    else:
        options.show(outcome.tests.lines(options.style(sys.stdout)))
    return int(outcome.exit_code)


test.__test__ = False  # type: ignore[attr-defined]  # pytest takes functions of this name for tests
