"""An action gets a fork server that holds what its toolchains and its code want, whatever toolchains there are."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlcbuild.cli.main import main
from mlcbuild.doctor.toolchains import examine_toolchain
from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.execution.preload import Preloads
from mlcbuild.toolchains import entries, table
from mlcbuild.toolchains.table import Toolchains, find, names

if TYPE_CHECKING:
    from tests.execution.conftest import World

TVM, NUMPY = find("tvm")[0].preload, find("numpy")[0].preload

# All that a toolchain takes.
SAFETENSORS = """
from mlcbuild.toolchains.toolchain import DistributionToolchain

TOOLCHAIN = DistributionToolchain(
    name="safetensors",
    distributions=("safetensors",),
    purpose="reading shards",
    preload=("safetensors",),
    trial="import safetensors; print('{\\"done\\": \\"imported\\"}')",
)
"""


@pytest.fixture
def safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A toolchain more, by one file in a folder of entries."""
    folder = tmp_path / "more entries"
    folder.mkdir()
    (folder / "safetensors.py").write_text(SAFETENSORS)
    monkeypatch.setattr(entries, "__path__", [*entries.__path__, str(folder)])
    monkeypatch.setattr(table, "names", lambda: tuple(sorted((*names(), "safetensors"))))
    name = f"{entries.__name__}.safetensors"
    monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]  # so that it is removed afterwards
    monkeypatch.delitem(sys.modules, name)


def test_what_is_declared_and_what_is_imported_is_preloaded(world: World) -> None:
    preloads = Preloads()
    assert preloads.of(world.stage("plain")) == ()
    assert preloads.of(world.stage("plain", toolchains=("ld", "nvrtc"))) == ()
    assert preloads.of(world.stage("plain", toolchains=("tvm",))) == TVM
    assert preloads.of(world.stage("plain", distributions=("apache-tvm", "numpy"))) == TVM
    assert preloads.of(world.stage("plain", distributions=("safetensors",))) == NUMPY
    assert preloads.of(world.tool("/bin/true")) == ()
    fetch = world.stage("plain", distributions=("numpy",), requirements=ExecutionRequirements(network=True))
    assert preloads.of(fetch) == ()


def test_an_action_runs_where_its_modules_are_loaded_already(world: World) -> None:
    modules = ["numpy", "safetensors"]
    bare = world.run(world.stage("loaded", modules=modules))
    numeric = world.run(world.stage("loaded", modules=modules, distributions=("safetensors",)))
    assert [world.content(outcome) for outcome in (bare, numeric)] == ["", "numpy"]


@pytest.mark.usefixtures("safetensors")
def test_a_toolchain_that_is_added_by_a_file_has_a_server_of_its_own(world: World, tmp_path: Path) -> None:
    from mlcbuild.execution.local import LocalExecutor
    from tests.execution.conftest import STAGES

    executor = LocalExecutor(world.store, jobs=1, scratch=tmp_path / "other", module_paths=(STAGES,))
    executor.start(world.outcomes.put)
    modules = ["numpy", "safetensors"]
    for toolchains in (("safetensors",), ("numpy", "safetensors"), ()):
        executor.submit(world.stage("loaded", modules=modules, toolchains=toolchains))
    told = sorted(world.content(world.next()) for _ in range(3))
    executor.close()
    assert told == ["", "numpy safetensors", "safetensors"]


@pytest.mark.usefixtures("safetensors")
def test_a_toolchain_that_is_added_by_a_file_is_known_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert "safetensors" in table.names()
    Toolchains().check(["safetensors"])
    assert len(Toolchains().fingerprint("safetensors")) == 64
    assert examine_toolchain(find("safetensors")[0]).measured.endswith("; imported")
    assert main(["info", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["toolchains"]["safetensors"]
