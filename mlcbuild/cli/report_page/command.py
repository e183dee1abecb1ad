"""`mlcbuild report`: what it does from the command line to the file."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cli.arguments.options import LOG_DIRECTORY, GlobalOptions
from mlcbuild.cli.log.listings import record_directory
from mlcbuild.cli.log.records import BuildRecord, chosen, iterate
from mlcbuild.cli.log.stored_results import StoredResults
from mlcbuild.cli.output.atomic_file import write_atomically
from mlcbuild.cli.output.slow_progress import slow_progress
from mlcbuild.cli.report_page.build import PageBuild
from mlcbuild.cli.report_page.comparison import compare
from mlcbuild.cli.report_page.details import DetailReader
from mlcbuild.cli.report_page.document import build_document, details_document
from mlcbuild.cli.report_page.event_file import read_events
from mlcbuild.cli.report_page.html import page_html
from mlcbuild.cli.report_page.recorded import earlier_build, read_record
from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.workspace.collector import without_collector

_READERS = 8  # threads; a disk that is not in memory answers many small reads at once sooner than one by one
DEFAULT_NAME = "report.html"
NO_COMPARISON = "none"
STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """What the command line asks for.

    The build is that of `events`, or else the recorded `build`. `compare` names a recorded build or a file of events;
    "": the last build of the same targets before it, "none": no comparison. `to` is a file, or "-" for standard output.
    """

    build: str = "1"
    events: Path | None = None
    compare: str = ""
    to: Path | None = None
    disk_cache: Path | None = None


@without_collector()
def write_report(request: ReportRequest, options: GlobalOptions) -> None:
    """Write the page and print its path; or print the page, if it goes to standard output.

    Raises UsageError for a build that is not there, WorkspaceError outside of a workspace, and LocalEnvironmentError if
    the file cannot be written.
    """
    build, earlier, path = _of_events(request, options) if request.events else _of_record(request, options)
    comparison = compare(build, earlier) if earlier else None
    made = frozenset(file.digest for action in build.actions for file in action.output_files)
    reader = DetailReader(StoredResults(request.disk_cache), made)
    with slow_progress(options) as progress, ThreadPoolExecutor(_READERS) as readers:
        total = len(build.actions)
        details = details_document(
            readers.map(reader.read, build.actions),
            lambda done: progress("reading the disk cache", done, total),
        )
    page = page_html(build_document(build, comparison), details)
    if path == STANDARD_OUTPUT:
        sys.stdout.write(page)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, page)
    except OSError as error:
        raise LocalEnvironmentError(f"the report cannot be written: {path}: {error.strerror}") from None
    print(path)


def _of_events(request: ReportRequest, options: GlobalOptions) -> tuple[PageBuild, PageBuild | None, Path]:
    assert request.events is not None
    compare_with = request.compare not in ("", NO_COMPARISON)
    earlier = _named(request.compare, options) if compare_with else None
    return read_events(request.events), earlier, request.to or Path(f"{request.events.stem}.html")


def _of_record(request: ReportRequest, options: GlobalOptions) -> tuple[PageBuild, PageBuild | None, Path]:
    directory = record_directory(options)
    record = _with_actions(directory, request.build)
    earlier: PageBuild | None = None
    if request.compare == "":
        found = earlier_build(record, iterate(directory))
        earlier = _read(found, directory) if found else None
    elif request.compare != NO_COMPARISON:
        earlier = _named(request.compare, options)
    return _read(record, directory), earlier, request.to or directory.parent / DEFAULT_NAME


def _named(name: str, options: GlobalOptions) -> PageBuild:
    """A recorded build, or one of a file of events. A file has a suffix or a folder, which names of builds have not."""
    path = Path(name)
    if path.suffix or len(path.parts) > 1:
        return read_events(path)
    directory = record_directory(options)
    return _read(_with_actions(directory, name), directory)


def _with_actions(directory: Path, wanted: str) -> BuildRecord:
    record = chosen(directory, wanted)
    if record.error:
        raise UsageError(
            f"build {record.invocation[:8]} failed before any action was known: there is nothing to show",
            advice=(record.error.splitlines()[0],),
        )
    if record.is_no_op:
        raise UsageError(
            f"build {record.invocation[:8]} had nothing to do: there is nothing to show",
            advice=("`mlcbuild log` gives a number to each build that did something",),
        )
    return record


def _read(record: BuildRecord, directory: Path) -> PageBuild:
    try:
        return read_record(record, logs=directory.parent / LOG_DIRECTORY)
    except ValueError as error:
        raise UsageError(f"the record {record.path} is damaged: {error}") from None
