"""Records that come along: each can be read, can be compared with today's kernels, and is of a platform that every
workspace has."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.engine.action import StageCall
from mlcbuild.tuning.choice import choices
from mlcbuild.tuning.record import Record, merged, platform_key
from mlcbuild.tuning.rule_versions import is_current
from mlcbuild.tuning.shipped import DATABASE, shipped_records
from mlcbuild.tuning.store import RecordStore
from tests.rules.model_workspaces import model_workspace
from tests.rules.world import action, analysed

FILES = sorted(DATABASE.glob("*.jsonl"))
TARGET = '[[model_library]]\nname = "l"\nmodel = ":shape"\nquantization = "q4f16_1"\nplatform = "@platforms//:sm_90"\n'


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_records_is_as_an_export_writes_it(path: Path) -> None:
    records = _records(path)
    assert records
    assert "".join(one.line() for one in merged(records)) == path.read_text()
    assert {one.rule for one in records if not is_current(one.rule)} == set()


def test_they_are_of_a_platform_that_every_workspace_has(tmp_path: Path) -> None:
    command = action(analysed(model_workspace(tmp_path, TARGET), "//models:l"), "Phase1").command
    assert isinstance(command, StageCall)
    target = dict(command.parameters)["target"]
    assert isinstance(target, dict)
    platform = platform_key(target)
    found = RecordStore(root=tmp_path).records(platform)
    assert found == shipped_records(platform)
    assert len(found) == 8
    assert choices(found) == {}, "the default is the best of what was measured beside it"


def test_those_of_an_h200_choose_other_shapes_than_the_defaults() -> None:
    (platform,) = {one.platform for path in FILES for one in _records(path) if "sm_90a" in one.platform}
    chosen = choices(shipped_records(platform))
    assert len(chosen) == 11
    assert {choice.rule for choice in chosen.values()} == {"cuda.gemv:2", "cuda.matmul:3", "cuda.paged_decode:2"}


def _records(path: Path) -> list[Record]:
    return [Record.read(line) for line in path.read_text(encoding="utf-8").splitlines()]
