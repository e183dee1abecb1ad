"""Writes the record for the no-op check at the end of a build (see `mlcbuild.engine.no_op_record`)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from mlcbuild.cli.build.parts import BuildParts
from mlcbuild.cli.workspace.program import program_paths
from mlcbuild.engine.build_events import ActionFinished, BuildEvent, Notice
from mlcbuild.engine.build_result import BuildResult
from mlcbuild.engine.no_op_record import make_no_op_record, save_no_op_record
from mlcbuild.engine.scheduler_events import RequestedTarget


class NoOpRecorder:
    """A listener that collects the keys of the build's actions. Make it before anything of the workspace is read."""

    def __init__(self) -> None:
        self._began_nanoseconds = time.time_ns()
        self._results: set[str] = set()
        self._forbidden = False

    def __call__(self, event: BuildEvent) -> None:
        if isinstance(event, ActionFinished) and event.key:
            self._results.add(event.key)
        elif isinstance(event, Notice):
            self._forbidden = True

    def forbid(self) -> None:
        """Write no record, because the next build of the same request has something to do or to say."""
        self._forbidden = True

    def save(
        self,
        request: str,
        *,
        parts: BuildParts,
        observed: Iterable[str],
        targets: Sequence[RequestedTarget],
        result: BuildResult,
        notes: Sequence[str] = (),
    ) -> None:
        """Write the record of a build that succeeded, unless its inputs may have changed during the build.

        `notes` are for people, and are printed again by builds that have nothing to do.
        """
        if self._forbidden or not self._results or not result.success:
            return
        placed = {}
        for target in targets:
            placed.update(parts.placer.identities(target.directory))
        record = make_no_op_record(
            parts.workspace.root,
            request=request,
            began_nanoseconds=self._began_nanoseconds,
            observed={*parts.observed(), *observed, *program_paths()},
            placed=placed,
            results=map(parts.store.result_path, self._results),
            outputs=tuple(path for target in result.targets for path in target.outputs),
            actions=sum(count for _, count in result.counts),
            targets=tuple(target.label for target in targets),
            notes=tuple(notes),
        )
        if record is not None:
            save_no_op_record(parts.workspace.state_directory, record)
