"""An action as `mlcbuild show` looks at it: with its outputs, its log, and when it ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcbuild.cli.arguments.options import LOG_DIRECTORY
from mlcbuild.cli.console.action_logs import log_path
from mlcbuild.cli.inspection.aquery import action_document, artifact_name
from mlcbuild.cli.log.listings import described
from mlcbuild.cli.show.last_runs import LastRuns, Recorded
from mlcbuild.engine.action import Action, DiscoveredArtifacts, Input, SourceArtifact
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.survey import Survey, SurveyedAction
from mlcbuild.errors import CacheError
from mlcbuild.regular_files import read_regular


@dataclass(frozen=True, kw_only=True)
class InputFiles:
    """One declared input with the files that it stands for, () if they are not known. `source` is the path of a file of
    the workspace, or what people call the action that makes it.
    """

    item: Input
    source: str
    files: tuple[FileEntry, ...]


@dataclass(frozen=True, kw_only=True)
class ShownAction:
    """`outputs` are None if no result is cached. `last` is the build that ran it last, `ended` the one from which it
    has its result, or in which it failed; they are None if no recorded build is. `placed` are the paths in the
    workspace at which its outputs lie.
    """

    surveyed: SurveyedAction
    inputs: tuple[InputFiles, ...]
    outputs: tuple[FileEntry, ...] | None
    log: str
    last: Recorded | None
    ended: Recorded | None
    placed: tuple[str, ...] = ()

    @property
    def action(self) -> Action:
        return self.surveyed.action

    @property
    def seconds(self) -> float | None:
        """The seconds of its last run; None if no recorded build ran it."""
        return None if self.last is None else float(self.last.action["time"] - self.last.action.get("start", 0.0))

    @property
    def output_bytes(self) -> int | None:
        return None if self.outputs is None else sum(entry.digest.size_bytes for entry in self.outputs)


@dataclass(frozen=True, kw_only=True)
class ActionViewer:
    """Makes `ShownAction` of surveyed actions. `state_directory` is that of the workspace, `placed` are the paths of
    the target's outputs by the identifiers of the actions that make them.
    """

    survey: Survey
    runs: LastRuns
    state_directory: Path
    placed: Mapping[str, tuple[str, ...]]

    def outputs(self, surveyed: SurveyedAction) -> tuple[FileEntry, ...] | None:
        """The files of its cached result; None without one."""
        return self.survey.outputs_of(surveyed)

    def view(self, surveyed: SurveyedAction, *, with_details: bool = True) -> ShownAction:
        """Without details its inputs and its log are left out."""
        identifier = surveyed.action.identifier
        return ShownAction(
            surveyed=surveyed,
            inputs=tuple(self._inputs(surveyed)) if with_details else (),
            outputs=self.outputs(surveyed),
            log=self._log(surveyed) if with_details else "",
            last=self.runs.runs.get(identifier),
            ended=self.runs.ends.get(identifier),
            placed=self.placed.get(identifier, ()),
        )

    def _inputs(self, surveyed: SurveyedAction) -> Iterator[InputFiles]:
        for item in surveyed.action.inputs:
            files = tuple(
                entry
                for entry in surveyed.inputs
                if entry.path == item.path or (item.path.endswith("/") and entry.path.startswith(item.path))
            )
            yield InputFiles(item=item, source=self._source(item, surveyed.action), files=files)

    def _source(self, item: Input, action: Action) -> str:
        if isinstance(item.artifact, SourceArtifact):
            return item.artifact.path
        maker = self.survey.actions.get(item.artifact.action)
        name = maker.action.title if maker else item.artifact.action
        group = f", all {item.artifact.group}" if isinstance(item.artifact, DiscoveredArtifacts) else ""
        return name.removeprefix(f"{action.owner} ") + group

    def _log(self, surveyed: SurveyedAction) -> str:
        """The log of its result, or of the last run if that failed."""
        result = self.survey.result_of(surveyed)
        if result is not None and result.stdout_digest is not None:
            self.survey.bring([result.stdout_digest])
            with suppress(CacheError):
                if log := self.survey.store.read(result.stdout_digest):
                    return log.decode("utf-8", "replace")
        ended = self.runs.ends.get(surveyed.action.identifier)
        if ended is None or ended.action["status"] != "failed":
            return ""
        path = self.state_directory / LOG_DIRECTORY / log_path(surveyed.action.identifier)
        try:
            return read_regular(path).decode("utf-8", "backslashreplace")
        except OSError:
            return ""

    def document(self, shown: ShownAction) -> dict[str, Any]:
        """The action as JSON: what `aquery` says of it, and its outputs, log and runs."""
        ended = shown.ended
        return {
            **action_document(shown.surveyed, self.survey),
            "input_files": [
                {
                    "path": each.item.path,
                    "artifact": artifact_name(each.item.artifact),
                    "files": [_file(entry) for entry in each.files],
                }
                for each in shown.inputs
            ],
            "output_files": None
            if shown.outputs is None
            else [{**_file(entry), "blob": self.blob_path(entry) or None} for entry in shown.outputs],
            "placed": list(shown.placed),
            "log": shown.log,
            "last_run": None if shown.last is None else _run(shown.last),
            "result_from": None
            if ended is None
            else {"build": ended.build.invocation, "status": ended.action["status"]},
        }

    def blob_path(self, entry: FileEntry) -> str:
        """The file of the disk cache that has these bytes; "" if none has, but maybe a remote cache."""
        return "" if self.survey.store.missing([entry.digest]) else str(self.survey.store.path_of(entry.digest))


def _file(entry: FileEntry) -> dict[str, Any]:
    return {
        "path": entry.path,
        "hash": entry.digest.hash,
        "size_bytes": entry.digest.size_bytes,
        "is_executable": entry.is_executable,
    }


def _run(recorded: Recorded) -> dict[str, Any]:
    return {
        "build": recorded.build.invocation,
        "began": recorded.build.began,
        **described(recorded.action, recorded.build),
    }
