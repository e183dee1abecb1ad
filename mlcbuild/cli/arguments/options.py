"""Options that several commands share, and those before a command's name."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from mlcbuild.cli.arguments.choices import (
    AnnotationsChoice,
    ExecutorChoice,
    ProgressChoice,
    RemoteUpload,
    WorkersChoice,
)
from mlcbuild.cli.arguments.completion import complete_configuration, complete_pattern
from mlcbuild.cli.output.terminal import ColorChoice, OutputFormat, Style, style_for, wrapping_width
from mlcbuild.cli.output.text import printable, wrapped

STATE_DIRECTORY = ".mlcbuild"
"""The folder of a workspace's local state, below its root: logs, state of the last build, tracebacks."""
LOG_DIRECTORY = "logs"
"""The folder of action logs, below the state directory."""
RECORD_DIRECTORY = "builds"
"""The folder of the history of builds, below the state directory."""


@dataclass(frozen=True, kw_only=True)
class GlobalOptions:
    """The options before the command's name, and when the command began (monotonic seconds)."""

    environment: Mapping[str, str]
    arguments: tuple[str, ...] = ()  # the whole command line without the program
    color: ColorChoice = ColorChoice.AUTO
    directory: Path = field(default_factory=Path.cwd)
    began: float = field(default_factory=time.monotonic)

    def style(self, stream: TextIO) -> Style:
        return style_for(stream, self.color, self.environment)

    def note(self, message: str) -> None:
        """Print a note on standard error."""
        self.tell([f"{self.style(sys.stderr).warning('note:')} {printable(message)}"])

    def tell(self, lines: Iterable[str]) -> None:
        """Print lines for people on standard error, wrapped to its width."""
        self._print(lines, sys.stderr)

    def show(self, lines: Iterable[str], *, verbatim: Collection[str] = ()) -> None:
        """Print lines of a result that people read on standard output, wrapped to its width but for `verbatim`."""
        self._print(lines, sys.stdout, verbatim)

    def _print(self, lines: Iterable[str], stream: TextIO, verbatim: Collection[str] = ()) -> None:
        for line in wrapped(lines, self.width(stream), verbatim=verbatim):
            print(line, file=stream)
        stream.flush()

    def width(self, stream: TextIO) -> int:
        """The columns into which text is wrapped; 0 for lines of any length."""
        return wrapping_width(stream, self.environment)

    def elapsed(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self.began


@dataclass(slots=True, kw_only=True)
class Invocation:
    """Carries the options out of the parser, so that an error is printed as they demand."""

    options: GlobalOptions


def global_options(context: typer.Context) -> GlobalOptions:
    """The options before the command's name."""
    invocation: Any = context.find_root().obj
    assert isinstance(invocation, Invocation)
    return invocation.options


_PATTERNS_HELP = (
    "Targets: //pkg:name, //pkg/... (all below), //pkg:all, :name (in this directory). "
    "After --, -PATTERN leaves targets out."
)
Patterns = Annotated[
    list[str],
    typer.Argument(
        metavar="PATTERN...",
        show_default=False,
        autocompletion=complete_pattern,
        help=_PATTERNS_HELP,
    ),
]
OptionalPatterns = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATTERN...",
        show_default=False,
        autocompletion=complete_pattern,
        help=_PATTERNS_HELP,
    ),
]
TargetPatternFileOption = Annotated[
    Path | None,
    typer.Option(
        "--target-pattern-file",
        metavar="FILE",
        help="Read more patterns, one a line, as `affected` prints them. An empty file builds nothing.",
    ),
]
ConfigOption = Annotated[
    str,
    typer.Option(
        "--config",
        metavar="NAME",
        show_default=False,
        autocompletion=complete_configuration,
        help="Use [configuration.NAME] of the root BUILD.toml.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="LABEL.ATTRIBUTE=VALUE",
        show_default=False,
        help="Set an attribute of a target for this command, whatever the files say. May be given several times.",
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", metavar="N", min=1, show_default=False, help="Run N actions at a time. Default: one per core."
    ),
]
KeepGoingOption = Annotated[
    bool,
    typer.Option(
        "--keep-going", "-k", help="After a failure, build everything that does not depend on the failed action."
    ),
]
BuildReportOption = Annotated[
    Path | None,
    typer.Option(
        "--build-report", metavar="FILE", help="Write the outcome of each target, and counts of actions, as JSON."
    ),
]
ProfileOption = Annotated[
    Path | None,
    typer.Option("--profile", metavar="FILE", help="Write a Chrome trace for ui.perfetto.dev."),
]
EventsOption = Annotated[
    Path | None,
    typer.Option("--events", metavar="FILE", help="Write each event as it happens, one JSON object a line."),
]
JunitOption = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="Write a JUnit report: a test case for each target, with logs."),
]
JobSummaryOption = Annotated[
    Path | None,
    typer.Option(
        "--job-summary", metavar="FILE", help='Append a summary in Markdown, as to "$GITHUB_STEP_SUMMARY" on GitHub.'
    ),
]
CodeQualityOption = Annotated[
    Path | None,
    typer.Option("--code-quality", metavar="FILE", help="Write errors with their places as GitLab's Code Quality."),
]
AnnotationsOption = Annotated[
    AnnotationsChoice,
    typer.Option(
        "--annotations",
        metavar="auto|github|none",
        show_default=False,
        help="Print errors for GitHub to show in the files. Default: auto, in its jobs only.",
    ),
]


def _check_folder(path: Path | None) -> Path | None:
    if path is not None and os.path.exists(path) and not os.path.isdir(path):  # noqa: PTH110, PTH112 (never raises)
        raise typer.BadParameter(f"{path} is a file, and not a folder")
    return path


DiskCacheOption = Annotated[
    Path | None,
    typer.Option(
        "--disk-cache",
        metavar="DIR",
        callback=_check_folder,
        help="Keep results in DIR instead of the user's cache directory, XDG_CACHE_HOME/mlcbuild.",
    ),
]
RemoteOption = Annotated[
    str,
    typer.Option(
        "--remote",
        metavar="ADDRESS",
        show_default=False,
        help="Share results: s3://bucket/prefix, http(s)://host/path, grpc(s)://host:port/instance, or none.",
    ),
]
AskRemoteOption = Annotated[
    bool,
    typer.Option("--ask-remote", help="Look results up in the remote cache of the settings too, as a build does."),
]
AskedRemoteOption = Annotated[
    str,
    typer.Option("--remote", metavar="ADDRESS", show_default=False, help="Look results up in this remote cache too."),
]
NoRemoteOption = Annotated[
    bool,
    typer.Option("--no-remote", help="Use no remote cache, even if the settings name one."),
]
RemoteUploadOption = Annotated[
    RemoteUpload | None,
    typer.Option(
        "--remote-upload",
        metavar="WHAT",
        show_default=False,
        help="Send never, results (of actions that run here), or always (also those in the disk cache). "
        "Default: never.",
    ),
]
ExecutorOption = Annotated[
    ExecutorChoice | None,
    typer.Option(
        "--executor",
        metavar="local|ray|auto",
        show_default=False,
        help="Run actions on this machine, on a Ray cluster, or wherever an action finishes sooner. Default: local.",
    ),
]
RayAddressOption = Annotated[
    str,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT",
        show_default=False,
        help="The Ray cluster. Without an address, --executor=ray starts a cluster on this machine for the build.",
    ),
]
SandboxOption = Annotated[
    bool | None,
    typer.Option(
        "--sandbox/--no-sandbox",
        show_default=False,
        help="Deny actions all access that they do not declare: other files, the network. Default: --sandbox.",
    ),
]
SandboxDebugOption = Annotated[
    bool,
    typer.Option("--sandbox-debug", help="Keep the sandbox directories of failed actions, and print their paths."),
]
WorkersOption = Annotated[
    WorkersChoice | None,
    typer.Option(
        "--workers",
        metavar="cold|warm",
        show_default=False,
        help="End workers with the build, or keep them for the next build. Default: cold.",
    ),
]
RecacheOption = Annotated[
    bool,
    typer.Option("--recache", help="Use no cached result: run every action and replace its result in the cache."),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        "-n",
        help="Print which actions would run, and why; run and place nothing. Exit code 10 if any would run.",
    ),
]
FromCacheOnlyOption = Annotated[
    bool,
    typer.Option(
        "--from-cache-only",
        help="Run nothing: place outputs from the caches, or list the actions without a result and fail with code 10.",
    ),
]
ShardOption = Annotated[
    str,
    typer.Option(
        "--shard",
        metavar="I/N",
        show_default=False,
        help="Take the part I of N of the targets, from 1/N to N/N. Targets that share actions stay together; parts "
        "take about equal time.",
    ),
]
TimingsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--timings",
        metavar="FILE",
        show_default=False,
        help="Split by the seconds in FILE, which `matrix --write-timings` has written. All parts need the same file.",
    ),
]
ProgressOption = Annotated[
    ProgressChoice,
    typer.Option(
        "--progress",
        metavar="auto|plain|quiet",
        show_default=False,
        help="Live on a terminal, or lines and a closing table (plain), or only failures and notes. Default: auto.",
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print failures and notes alone, as --progress=quiet."),
]
VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Print a line for each action that ran."),
]
ShowLogOption = Annotated[
    bool,
    typer.Option("--show-log", help="Show the whole output of all actions, not only the last lines of failed ones."),
]
OutputOption = Annotated[
    OutputFormat,
    typer.Option("--output", metavar="text|json", show_default=False, help="How to print results. Default: text."),
]
