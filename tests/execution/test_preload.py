"""An action gets a fork server with what its toolchains and imports need. A toolchain is added with one file."""

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

# This is all that a toolchain needs.
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
    """One more toolchain: a file in a folder of entries."""
    folder = tmp_path / "more entries"
    folder.mkdir()
    (folder / "safetensors.py").write_text(SAFETENSORS)
    monkeypatch.setattr(entries, "__path__", [*entries.__path__, str(folder)])
    monkeypatch.setattr(table, "names", lambda: tuple(sorted((*names(), "safetensors"))))
    name = f"{entries.__name__}.safetensors"
    monkeypatch.setitem(sys.modules, name, None)  # so that it is removed afterwards
    monkeypatch.delitem(sys.modules, name)


def test_declared_toolchains_and_imported_distributions_are_preloaded(world: World) -> None:
    preloads = Preloads()
    assert preloads.of(world.stage("plain")) == ()
    assert preloads.of(world.stage("plain", toolchains=("ld", "nvrtc"))) == ()
    assert preloads.of(world.stage("plain", toolchains=("tvm",))) == TVM
    assert preloads.of(world.stage("plain", distributions=("apache-tvm", "numpy"))) == TVM
    assert preloads.of(world.stage("plain", distributions=("safetensors",))) == NUMPY
    assert preloads.of(world.tool("/bin/true")) == ()
    fetch = world.stage("plain", distributions=("numpy",), requirements=ExecutionRequirements(network=True))
    assert preloads.of(fetch) == ()


def test_a_stage_starts_with_its_modules_loaded(world: World) -> None:
    modules = ["numpy", "safetensors"]
    bare = world.run(world.stage("loaded", modules=modules))
    numeric = world.run(world.stage("loaded", modules=modules, distributions=("safetensors",)))
    assert [world.content(outcome) for outcome in (bare, numeric)] == ["", "numpy"]


@pytest.mark.usefixtures("safetensors")
def test_an_added_toolchain_gets_a_server_that_holds_it(world: World, tmp_path: Path) -> None:
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
def test_an_added_toolchain_is_known_to_builds_info_and_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert "safetensors" in table.names()
    Toolchains().check(["safetensors"])
    assert len(Toolchains().fingerprint("safetensors")) == 64
    assert examine_toolchain(find("safetensors")[0]).measured.endswith("; imported")
    assert main(["info", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["toolchains"]["safetensors"]
