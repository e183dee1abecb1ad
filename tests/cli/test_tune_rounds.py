"""Rounds of trials, some of which fail without a record."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mlcbuild.cli.build.request import BuildRequest
from mlcbuild.cli.output.slow_progress import SlowProgress
from mlcbuild.cli.tune.building import TuneBuilder
from mlcbuild.cli.tune.command import OpenTuning, TuneRequest, TuneRounds
from mlcbuild.cli.tune.plan import Trial
from mlcbuild.engine.build_result import ActionFailure, BuildResult
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.runtime.measuring.measurement import MEASURED, Measurement, MeasuringDevice
from mlcbuild.tuning.store import RecordStore
from tests.cli.tunable_kernels import LIBRARY, kernel

FOUND = Measurement(outcome=MEASURED, device=MeasuringDevice(name="a processor"), seconds=1.0, untuned_seconds=1.0)


class Machine:
    """Measures all trials but those that it refuses, and keeps a list of what it was asked for."""

    execution = SimpleNamespace(uses_ray=True)  # takes no lock of this machine

    def __init__(self, refuses: Callable[[Trial], bool]) -> None:
        self._refuses = refuses
        self.asked: list[tuple[str, int]] = []

    def measure(self, trials: Sequence[Trial], *, measured: Callable[..., object], **_options: Any) -> BuildResult:
        self.asked += [(trial.kernel.text, trial.number) for trial in trials]
        refused = [trial for trial in trials if self._refuses(trial)]
        for trial in trials:
            if trial not in refused:
                measured(trial, [FOUND])
        failure = ActionFailure(identifier="a", title="TuneKernel", message="no memory", environment=True)
        return BuildResult(
            success=not refused,
            interrupted=False,
            invocation="",
            wall_seconds=0.0,
            targets=(),
            failures=(failure,) * len(refused),
            counts=(),
            critical_path=(),
            bytes_downloaded=0,
            bytes_uploaded=0,
        )


class Silent:
    def show_counted(self, *_: object) -> None: ...


def _rounds(folder: Path, machine: Machine, trials: int) -> TuneRounds:
    opened = OpenTuning(
        builder=cast(TuneBuilder, machine),
        libraries=(LIBRARY,),
        kernels=(kernel(1, 1024), kernel(2, 8)),
        store=RecordStore(root=folder),
        trials=trials,
    )
    request = TuneRequest(build=cast(BuildRequest, None))
    return TuneRounds(opened, request, cast(SlowProgress, Silent()))


def test_a_measurement_that_always_fails_is_made_once_and_ends_nothing(tmp_path: Path) -> None:
    machine = Machine(lambda trial: (trial.kernel.text, trial.number) == ("1", 3))
    rounds = _rounds(tmp_path, machine, 100)
    rounds.make(pytest.fail)
    assert len(machine.asked) == len(set(machine.asked)) == 2 * 11, "all shapes of both kernels, each once"
    assert (rounds.spent, len(rounds.failed)) == (21, 1)
    assert "no memory" in rounds.why


def test_failures_are_spent_as_trials_are(tmp_path: Path) -> None:
    machine = Machine(lambda trial: trial.kernel.text == "2")
    rounds = _rounds(tmp_path, machine, 8)
    rounds.make(pytest.fail)
    assert len(machine.asked) == rounds.spent + len(rounds.failed) == 8


def test_a_machine_that_measures_nothing_is_told(tmp_path: Path) -> None:
    machine = Machine(lambda _: True)
    with pytest.raises(LocalEnvironmentError, match="no memory"):
        _rounds(tmp_path, machine, 100).make(pytest.fail)
    assert len(machine.asked) == 2


def test_the_lock_of_the_machine_is_the_users_wherever_the_disk_cache_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    lock = tmp_path / "user/mlcbuild/tuning/measuring.lock"
    machine = Machine(lambda _: not _is_locked(lock))
    monkeypatch.setattr(machine, "execution", SimpleNamespace(uses_ray=False))
    rounds = _rounds(tmp_path / "another cache", machine, 2)
    rounds.make(pytest.fail)
    assert (rounds.spent, rounds.failed) == (2, set()), "each was measured with the lock held"
    assert not _is_locked(lock)


def _is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
