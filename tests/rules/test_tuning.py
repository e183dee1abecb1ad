"""The attribute `tuning`: what records reach, and what they change in no key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlcbuild.engine.action import Action, StageCall
from mlcbuild.errors import WorkspaceErrors
from mlcbuild.rules.analysis import Analysis, analyse
from mlcbuild.rules.registry import load_rules
from mlcbuild.rules.repositories import repositories
from mlcbuild.rules.tuning import trials_of
from mlcbuild.tuning.record import platform_key
from mlcbuild.tuning.store import RecordStore
from mlcbuild.workspace.loader import load
from tests.rules.model_workspaces import model_workspace
from tests.tuning.recorded import record

KERNELS = [f"kernel_{number:032x}" for number in range(2)]
TARGET = '[[model_library]]\nname = "one"\nmodel = ":shape"\nquantization = "q4f16_1"\nplatform = ":v3"\n'


def _analysed(root: Path, records: RecordStore) -> Analysis:
    rules = load_rules(root, ())
    schemas = {name: rule.schema for name, rule in rules.items()}
    return analyse(load(root, schemas, ["//models:one"], repositories=repositories()), rules, records)


def _schedules(root: Path, tuning: str, records: RecordStore, *, opt: str = "O2") -> list[Action]:
    """The ScheduleKernel actions of two kernels."""
    analysis = _analysed(model_workspace(root, TARGET + f'tuning = "{tuning}"\nopt = "{opt}"\n'), records)
    partition = next(each for each in analysis.actions if each.mnemonic == "Partition")
    assert partition.discoverer is not None
    manifest = json.dumps({"version": 1, "kernels": KERNELS}).encode()
    announced = partition.discoverer(discovering=partition.identifier, manifest=manifest).actions
    return [action for action in announced if action.mnemonic == "ScheduleKernel"]


def _platform(root: Path) -> str:
    """The key of the library's platform, as its actions have it."""
    (action, _) = _schedules(root, "off", RecordStore(root=root))
    assert isinstance(action.command, StageCall)
    target = dict(action.command.parameters)["target"]
    assert isinstance(target, dict)
    return platform_key(target)


def test_a_record_is_a_parameter_of_its_kernel_alone(tmp_path: Path) -> None:
    records = RecordStore(root=tmp_path / "cache")
    plain = _schedules(tmp_path / "a", "off", records)
    assert _schedules(tmp_path / "a", "cached", records) == plain, "without records cached is off"
    made = record(kernel=KERNELS[1], platform=_platform(tmp_path / "a"))
    records.add([made])
    assert _schedules(tmp_path / "a", "off", records) == plain
    first, second = _schedules(tmp_path / "a", "cached", records)
    assert _schedules(tmp_path / "a", "8 trials", records) == [first, second]
    assert first == plain[0]
    assert isinstance(second.command, StageCall)
    tuned = {"rule": made.rule, "shape": dict(made.shape), "record": made.digest}
    assert dict(second.command.parameters)["tuned"] == tuned
    assert _schedules(tmp_path / "a", "cached", records, opt="O0") == _schedules(
        tmp_path / "a", "off", records, opt="O0"
    )


def test_records_of_another_platform_tune_nothing(tmp_path: Path) -> None:
    records = RecordStore(root=tmp_path / "cache")
    records.add([record(kernel=kernel, platform="llvm-x86-64-v3-ffffffffffff") for kernel in KERNELS])
    assert _schedules(tmp_path / "a", "cached", records) == _schedules(tmp_path / "a", "off", records)


def test_the_folder_of_records_decided_an_analysis_that_asked_for_them(tmp_path: Path) -> None:
    records = RecordStore(root=tmp_path / "cache")
    folder = str(records.folder(_platform(tmp_path / "a")))
    for tuning, expected in (("cached", True), ("off", False)):
        root = model_workspace(tmp_path / "a", TARGET + f'tuning = "{tuning}"\n')
        assert (folder in _analysed(root, records).observed.read) is expected


def test_a_tuning_that_is_none_is_told_at_its_place(tmp_path: Path) -> None:
    root = model_workspace(tmp_path, TARGET + 'tuning = "much"\n')
    with pytest.raises(WorkspaceErrors, match='"much" is no tuning') as caught:
        _analysed(root, RecordStore(root=tmp_path))
    assert '"100 trials"' in str(caught.value)
    assert [trials_of(value) for value in ("off", "cached", "1 trial", "250 trials")] == [0, 0, 1, 250]
    with pytest.raises(ValueError, match="no tuning"):
        trials_of("0 trials")
