"""`mlcbuild compare`: builds and measures a comparison, and times the builds that it compares."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mlcbuild.cli.arguments.options import STATE_DIRECTORY, GlobalOptions
from mlcbuild.cli.build.no_op_check import current_build
from mlcbuild.cli.build.request import BuildOutcome, BuildRequest
from mlcbuild.cli.build.session import run_build
from mlcbuild.cli.compare.chart import comparison_svg
from mlcbuild.cli.compare.comparison import Comparison, read_comparison
from mlcbuild.cli.compare.tables import as_markdown, as_text, failures_of, tables_of, title_of
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.execution.measuring_lock import measuring_here
from mlcbuild.rules.analysis import Analysis
from mlcbuild.workspace.attribute_override import parse_override
from mlcbuild.workspace.graph import reachable

_RULE = "compile_comparison"


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """`cold` compiles everything again, to time it. `svg` and `markdown` are files to write."""

    cold: bool
    svg: Path | None
    markdown: Path | None
    output: OutputFormat


def compare(label: str, request: BuildRequest, given: CompareOptions, options: GlobalOptions) -> ExitCode:
    """A failed build is told, and gives its exit code. Raises UsageError for a target of another rule, and
    LocalEnvironmentError where a file cannot be written."""

    def check(analysis: Analysis) -> None:
        rules = [target.rule for target in analysis.requested]
        if rules != [_RULE]:
            what = f"is a {rules[0]}" if len(rules) == 1 else f"matches {len(rules)} targets"
            raise UsageError(f"{label} {what}", advice=(f"name one {_RULE}",))

    for path in (given.svg, given.markdown):
        if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK)):
            raise LocalEnvironmentError(f"{path} cannot be written")
    quiet = replace(request, quiet_if_current=True)
    # Nobody else who measures here may do so meanwhile.
    with (
        measuring_here(waits=options.note),
        tempfile.TemporaryDirectory(prefix="mlcbuild-") as folder,
    ):
        events = Path(folder, "events")
        outcome = run_build(replace(quiet, check=check, events=events), options)
        if outcome.exit_code is not ExitCode.OK:
            return outcome.exit_code
        document = _measured(outcome)
        labels = tuple(each["label"] for each in document["models"])
        if given.cold:
            again = run_build(
                replace(_request_for(labels, quiet, outcome), recache=True, jobs=1, events=events), options
            )
            if again.exit_code is not ExitCode.OK:
                return again.exit_code
            # What was made now may be other files than those that were measured.
            outcome = run_build(replace(quiet, check=check), options)
            if outcome.exit_code is not ExitCode.OK:
                return outcome.exit_code
            document = _measured(outcome)
        compiled = _seconds_of_runs(events)
        cached = {}
        for each in labels:
            taken = _seconds_of_no_op(_request_for((each,), quiet, outcome), options)
            if isinstance(taken, ExitCode):
                return taken
            cached[each] = taken
    (target,) = outcome.analysis.requested
    comparison = read_comparison(
        document,
        label=str(target.label),
        machine=document["machine"],
        compile_seconds=compiled,
        cached_seconds=cached,
    )
    for path, content in ((given.svg, comparison_svg), (given.markdown, as_markdown)):
        if path is not None:
            _write(path, content(comparison))
    if given.output is OutputFormat.JSON:
        print_json(asdict(comparison))
    else:
        _print(comparison, options)
    return ExitCode.OK


def _measured(outcome: BuildOutcome) -> dict[str, Any]:
    (path,) = [path for path in outcome.paths if path.endswith("/measured.json")]
    document: dict[str, Any] = json.loads((outcome.workspace.root / path).read_text(encoding="utf-8"))
    return document


def _request_for(labels: Sequence[str], request: BuildRequest, outcome: BuildOutcome) -> BuildRequest:
    """The request for some of the builds that were compared, which sets no attribute of what these do not need."""
    analysis = outcome.analysis
    closure = frozenset(
        reachable((label for label in analysis.targets if str(label) in labels), analysis.needs.__getitem__)
    )
    current = outcome.workspace.current_package
    needed = tuple(text for text in request.overrides if parse_override(text, current).label in closure)
    return replace(request, patterns=tuple(labels), overrides=needed)


def _print(comparison: Comparison, options: GlobalOptions) -> None:
    style = options.style(sys.stdout)
    print(title_of(comparison))
    for table in tables_of(comparison):
        head, *rows = as_text(table)
        print()
        print(style.bold(head))
        for row in rows:
            print(row)
    failed = list(failures_of(comparison))
    for line in failed:
        print(f"\ndid not run: {line}")
    if failed:
        options.note(f"to measure again: mlcbuild build --recache {comparison.label}")


def _seconds_of_runs(events: Path) -> dict[str, float]:
    """The seconds of what ran, by its target, without those of laying out inputs and storing outputs."""
    found: dict[str, float] = {}
    for line in events.read_text(encoding="utf-8").splitlines():
        event: dict[str, Any] = json.loads(line)
        if event["event"] == "action_finished" and event["executor"]:
            own = event["seconds"] - event["input_seconds"] - event["output_seconds"]
            found[event["owner"]] = found.get(event["owner"], 0.0) + own
    return found


def _seconds_of_no_op(request: BuildRequest, options: GlobalOptions) -> float | ExitCode:
    """Those of a build after one of the same target, or the exit code of one that does not come to its end."""
    for _ in range(2):
        began = time.perf_counter()
        current = current_build(request.text(options), directory=options.directory, state_directory=STATE_DIRECTORY)
        if current is None and (outcome := run_build(request, options)).exit_code is not ExitCode.OK:
            return outcome.exit_code
    return time.perf_counter() - began


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise LocalEnvironmentError(f"{path} cannot be written: {error.strerror or error}") from error
