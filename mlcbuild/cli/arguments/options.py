"""Options that several commands share, and the values that they become."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from mlcbuild.cli.arguments.completion import complete_configuration, complete_pattern
from mlcbuild.cli.output.terminal import ColorChoice, OutputFormat, Style, style_for

STATE_DIRECTORY = ".mlcbuild"
"""Local state of a workspace, below its root: logs, what the last build knew, tracebacks."""


LOG_DIRECTORY = "logs"
"""The logs of actions, below the state directory."""


class RemoteUpload(enum.StrEnum):
    """The values of `--remote-upload`."""

    NEVER = "never"
    RESULTS = "results"
    ALWAYS = "always"


class ExecutorChoice(enum.StrEnum):
    """The values of `--executor`."""

    LOCAL = "local"
    RAY = "ray"
    AUTO = "auto"


class WorkersChoice(enum.StrEnum):
    """The values of `--workers`."""

    COLD = "cold"
    WARM = "warm"


class QueryOutput(enum.StrEnum):
    """The values of `query --output`."""

    LABEL = "label"
    LABEL_KIND = "label_kind"
    JSON = "json"


@dataclass(frozen=True, kw_only=True)
class GlobalOptions:
    """What stands before the command's name, and the moment at which the command began (monotonic seconds)."""

    environment: Mapping[str, str]
    arguments: tuple[str, ...] = ()  # of the whole command line, without the program
    color: ColorChoice = ColorChoice.AUTO
    directory: Path = field(default_factory=Path.cwd)
    began: float = field(default_factory=time.monotonic)

    def style(self, stream: TextIO) -> Style:
        return style_for(stream, self.color, self.environment)

    def elapsed(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self.began


@dataclass(slots=True, kw_only=True)
class Invocation:
    """Carries the options out of the parser, so that a failure is printed as they say."""

    options: GlobalOptions


def global_options(context: typer.Context) -> GlobalOptions:
    """The options that stood before the command's name."""
    invocation: Any = context.find_root().obj
    assert isinstance(invocation, Invocation)
    return invocation.options


Patterns = Annotated[
    list[str],
    typer.Argument(
        metavar="PATTERN...",
        show_default=False,
        autocompletion=complete_pattern,
        help="Targets: //pkg:name, //pkg/... (all below), //pkg:all, :name (of this directory). "
        "After --, -PATTERN leaves targets out.",
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
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", metavar="N", min=1, show_default=False, help="Run N actions at once. Default: one a core."
    ),
]
KeepGoingOption = Annotated[
    bool,
    typer.Option("--keep-going", "-k", help="After a failure, build all that does not need what failed."),
]
BuildReportOption = Annotated[
    Path | None,
    typer.Option("--build-report", metavar="FILE", help="Write what came of each target and action, as JSON."),
]
ProfileOption = Annotated[
    Path | None,
    typer.Option("--profile", metavar="FILE", help="Write a Chrome trace, for ui.perfetto.dev."),
]
EventsOption = Annotated[
    Path | None,
    typer.Option("--events", metavar="FILE", help="Write every event as it happens, a JSON object a line."),
]
DiskCacheOption = Annotated[
    Path | None,
    typer.Option(
        "--disk-cache",
        metavar="DIR",
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
NoRemoteOption = Annotated[
    bool,
    typer.Option("--no-remote", help="Use no remote cache, whatever the settings say."),
]
RemoteUploadOption = Annotated[
    RemoteUpload | None,
    typer.Option(
        "--remote-upload",
        metavar="WHAT",
        show_default=False,
        help="Send never, results (of what runs here), or always (also of what is found on this disk). Default: never.",
    ),
]
ExecutorOption = Annotated[
    ExecutorChoice | None,
    typer.Option(
        "--executor",
        metavar="local|ray|auto",
        show_default=False,
        help="Run actions on this machine, on a Ray cluster, or on either as it is worth the trip. Default: local.",
    ),
]
RayAddressOption = Annotated[
    str,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT",
        show_default=False,
        help="The Ray cluster. Without one, --executor=ray starts one on this machine for the build.",
    ),
]
SandboxOption = Annotated[
    bool | None,
    typer.Option(
        "--sandbox/--no-sandbox",
        show_default=False,
        help="Keep actions from all that they do not declare: other files, the network. Default: --sandbox.",
    ),
]
SandboxDebugOption = Annotated[
    bool,
    typer.Option("--sandbox-debug", help="Keep the directories of failed actions, and say where they are."),
]
WorkersOption = Annotated[
    WorkersChoice | None,
    typer.Option(
        "--workers",
        metavar="cold|warm",
        show_default=False,
        help="End workers with the build, or leave them to the next one. Default: cold.",
    ),
]
RecacheOption = Annotated[
    bool,
    typer.Option("--recache", help="Use no cached result; run every action and put what it makes in place of it."),
]
ShowLogOption = Annotated[
    bool,
    typer.Option("--show-log", help="Show all that actions print, not only the end of what failed ones do."),
]
OutputOption = Annotated[
    OutputFormat,
    typer.Option("--output", metavar="text|json", show_default=False, help="How to print results. Default: text."),
]
