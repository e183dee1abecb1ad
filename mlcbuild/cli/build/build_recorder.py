"""Listens to a build, and writes its record for `mlcbuild log`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mlcbuild.cli.build.no_op_check import without_credentials
from mlcbuild.cli.log.recording import write_record
from mlcbuild.cli.settings.history import HistoryLimits
from mlcbuild.engine.build_events import (
    ActionFinished,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    Notice,
    TargetFinished,
    TargetSkipped,
)

_RECORDED = TargetSkipped | BuildStarted | ActionFinished | Notice | TargetFinished | BuildFinished


class BuildRecorder:
    """What a record needs of one build's events. `arguments` are the command line, and `began` is in seconds since
    1970."""

    def __init__(self, *, arguments: Sequence[str], began: float) -> None:
        self._arguments = [without_credentials(argument) for argument in arguments]
        self._began = began
        self._events: list[BuildEvent] = []

    def __call__(self, event: BuildEvent) -> None:
        if isinstance(event, _RECORDED):
            self._events.append(event)

    @property
    def started(self) -> bool:
        """Whether the build came to its actions."""
        return any(isinstance(event, BuildStarted) for event in self._events)

    def write(self, directory: Path, exit_code: int, limits: HistoryLimits) -> None:
        """Write the record. A full disk loses the record and nothing else."""
        with suppress(OSError):
            write_record(
                directory,
                self._events,
                began=self._began,
                arguments=self._arguments,
                exit_code=exit_code,
                limits=limits,
            )
