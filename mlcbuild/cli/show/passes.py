"""Runs the phases of a target again, pass by pass, on their cached inputs. Nothing of it enters the disk cache."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mlcbuild.cache.disk import DiskStore
from mlcbuild.cli.rendering.stage_runner import StageRun, StageRunner
from mlcbuild.engine.action import Action, StageCall
from mlcbuild.engine.survey import SurveyedAction

_STAGE = "mlcbuild.compiler.stages.dump_passes:run"
_DUMP = "passes/"
# The stages that run passes one after the other.
_PHASES = frozenset(
    {*(f"mlcbuild.compiler.stages.phase{number}:run" for number in range(4)), "mlcbuild.compiler.stages.lower:run"}
)


@dataclass(frozen=True, kw_only=True)
class PassDump:
    """The files of one phase by their names, as they lie in a temporary folder; or why there are none."""

    files: dict[str, Path]
    failure: str = ""


def has_passes(action: Action) -> bool:
    """Whether an action runs passes that can be told apart."""
    return isinstance(action.command, StageCall) and action.command.function in _PHASES


@contextmanager
def dumped_passes(actions: Sequence[SurveyedAction], runner: StageRunner) -> Iterator[dict[str, PassDump]]:
    """The dumps by the identifiers of actions, all of which have passes. The files live as long as the block."""
    state = runner.workspace.state_directory
    state.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="passes-", dir=state) as folder:
        store = DiskStore(Path(folder, "store"), runner.store.function)
        try:
            for each in actions:
                for entry in each.inputs:
                    store.put_file(Path(runner.store.path_of(entry.digest)))
            runs = [StageRun(action=_observed(each.action), inputs=each.inputs) for each in actions]
            ends = replace(runner, store=store).run(runs, keeps=False)
            yield {
                each.action.identifier: PassDump(
                    files={
                        entry.path.removeprefix(_DUMP): Path(store.path_of(entry.digest))
                        for entry in end.outputs
                        if entry.path.startswith(_DUMP)
                    },
                    failure=end.failure,
                )
                for each, end in zip(actions, ends, strict=True)
            }
        finally:
            store.release()


def _observed(action: Action) -> Action:
    """The action that runs the same passes and writes the module after each of them."""
    assert isinstance(action.command, StageCall)
    call = replace(
        action.command,
        function=_STAGE,
        outputs=(*action.command.outputs, ("dump", _DUMP)),
        plugins=(*action.command.plugins, ("phase", action.command.function)),
    )
    return replace(action, outputs=(*action.outputs, _DUMP), command=call)
