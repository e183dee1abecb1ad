"""The files of tests, below `.mlcbuild/testlogs/CONFIGURATION/PACKAGE/TARGET/`: test.json and test.log.

A build puts the test.json of a test that passed in place. What a failed one left is written here, so that a failure is
never beside the figures of an earlier run that passed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mlcbuild.cache.store import LocalBlobStore
from mlcbuild.cli.output import text
from mlcbuild.cli.output.atomic_file import write_atomically
from mlcbuild.cli.test.plan import PlannedRun
from mlcbuild.cli.test.results import TestEvents, message_of
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, BuildEvent
from mlcbuild.engine.target_totals import CACHED, RAN
from mlcbuild.errors import MlcbuildError
from mlcbuild.rules.tested import RESULT
from mlcbuild.runtime.test_result import TestResult, read_test_result

LOG = "test.log"


class TestFiles:
    """Writes the files of runs as they end. `root` is the workspace, `store` is known once the build has begun."""

    __test__ = False

    def __init__(self, root: Path, events: TestEvents) -> None:
        self._root = root
        self._events = events
        self.store: LocalBlobStore | None = None
        self.stored_log: Callable[[str], str] = lambda _key: ""

    def __call__(self, event: BuildEvent) -> None:
        if isinstance(event, ActionFinished) and (run := self._events.runs.get(event.identifier)):
            with contextlib.suppress(OSError):  # What cannot be written fails no test; the console has told it.
                self._write(run, event)

    def log_of(self, run: PlannedRun) -> str:
        """What a run printed, at the end of which stands why it failed."""
        try:
            return (self._root / self.log_path(run)).read_text("utf-8", "replace")
        except OSError:
            return ""

    def log_path(self, run: PlannedRun) -> str:
        """From the workspace."""
        return f"{run.folder}/{LOG}"

    def found(self) -> Mapping[str, tuple[str, Mapping[str, object]]]:
        """The summary and the figures of each run that left a test.json."""
        return {name: (result.summary, result.figures) for name, result in self._results()}

    def _results(self) -> Iterator[tuple[str, TestResult]]:
        for name, event in self._events.ended.items():
            data = self._left(event)
            if event.status in CACHED:  # Its bytes may have come from a remote right into its place.
                with contextlib.suppress(OSError):
                    data = data or (self._root / self._events.runs[name].folder / RESULT).read_bytes()
            if data is not None and (result := read_test_result(data)):
                yield name, result

    def _left(self, event: ActionFinished) -> bytes | None:
        entry = next((entry for entry in event.output_files if entry.path.endswith(f"/{RESULT}")), None)
        if entry is None or self.store is None:
            return None
        with contextlib.suppress(MlcbuildError):
            return self.store.read(entry.digest)
        return None

    def _write(self, run: PlannedRun, event: ActionFinished) -> None:
        folder = self._root / run.folder
        if event.status is ActionStatus.FAILED:
            folder.mkdir(parents=True, exist_ok=True)
            self._replace(folder / RESULT, (self._left(event) or b"").decode("utf-8", "replace"))
            self._replace(folder / LOG, _log(event))
        elif event.status in RAN:
            folder.mkdir(parents=True, exist_ok=True)
            self._replace(folder / LOG, _log(event))
        elif event.status in CACHED and (stored := self.stored_log(event.key)):
            folder.mkdir(parents=True, exist_ok=True)
            self._replace(folder / LOG, stored)

    def _replace(self, path: Path, content: str) -> None:
        path.unlink(missing_ok=True)  # The file that a build put there is read-only.
        if content:
            write_atomically(path, content)


def _log(event: ActionFinished) -> str:
    printed = event.log.decode("utf-8", "backslashreplace").rstrip()
    if event.status is not ActionStatus.FAILED:
        return f"{printed}\n" if printed else ""
    first, detail = message_of(event)
    said = [line for line in (first, *detail) if line not in printed.splitlines()]
    return "".join(f"{line}\n" for line in (*printed.splitlines(), *map(text.printable, said)))
