"""`tune measure`: one measurement at a time on a machine, and of a folder."""

from __future__ import annotations

import errno
import fcntl
import json
import struct
from pathlib import Path

import pytest

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.execution.measuring_lock import measuring_in
from mlcbuild.runtime.measuring.candidate_folder import (
    FolderContents,
    KernelCandidates,
    add_measured,
    digest_of,
    measured_candidates,
    write_contents,
)
from mlcbuild.runtime.measuring.candidate_list import CandidateList
from mlcbuild.runtime.measuring.measurement import MEASURED, Measurement, MeasuringDevice
from tests.end_to_end.world import World

KERNEL = f"kernel_{1:032x}"
FOR_A_GPU = struct.pack("<Q", len("cuda")) + b"cuda"  # what names the kind of a library's device
FOUND = Measurement(outcome=MEASURED, device=MeasuringDevice(name="a processor"), seconds=1.0, untuned_seconds=1.0)


def _folder(folder: Path) -> Path:
    """Candidates of a kernel with two shapes."""
    listed = CandidateList(kernel=KERNEL, rule="a rule", shapes=({"rows": 1}, {"rows": 2}))
    kernels = (KernelCandidates(listed=listed, text="a kernel", numbers=(1,)),)
    folder.mkdir()
    (folder / "libraries").mkdir()
    for number in (0, 1):
        (folder / kernels[0].library(number)).write_bytes(FOR_A_GPU)
    libraries = {kernels[0].library(number): digest_of(FOR_A_GPU) for number in (0, 1)}
    write_contents(folder, FolderContents(platform="p", tools="t", kernels=kernels, libraries=libraries))
    return folder


@pytest.mark.parametrize("of_machine", [True, False])
def test_it_waits_for_another_that_measures_and_repeats_nothing_of_it(tmp_path: Path, of_machine: bool) -> None:
    world, folder = World(tmp_path), _folder(tmp_path / "candidates")
    with measuring_in(world.cache / "mlcbuild/tuning" if of_machine else folder, waits=pytest.fail):
        process = world.start("tune", "measure", str(folder), "--output=json")
        assert process.stderr is not None
        assert "waiting for another process that measures" in process.stderr.readline()
        add_measured(folder, KERNEL, 1, [FOUND])
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    document = json.loads(out)
    assert (document["measured"], document["known"]) == (0, 1)


def test_what_the_machine_lacks_is_no_measurement(tmp_path: Path) -> None:
    world, folder = World(tmp_path), _folder(tmp_path / "candidates")
    done = world.process("tune", "measure", str(folder))
    # Where there is a GPU, the kernel of the default shape cannot be loaded.
    assert done.code != 0
    assert "CUDA" in done.err or "cannot be measured here" in done.err
    assert measured_candidates(folder) == ()


@pytest.mark.parametrize("number", [0, 1])
def test_a_copy_that_is_not_whole_is_told_and_measures_nothing(tmp_path: Path, number: int) -> None:
    world, folder = World(tmp_path), _folder(tmp_path / "candidates")
    library = folder / f"libraries/{KERNEL}.{number}.so"
    library.write_bytes(FOR_A_GPU[:-1])
    done = world.process("tune", "measure", str(folder))
    assert f"{number}.so cannot be measured: it is not as it was written" in done.err
    library.unlink()
    done = world.process("tune", "measure", str(folder))
    assert f"{number}.so cannot be measured: No such file" in done.err
    assert measured_candidates(folder) == ()


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with (
        pytest.raises(LocalEnvironmentError, match=r"measuring\.lock cannot be taken: No locks available"),
        measuring_in(tmp_path, waits=pytest.fail),
    ):
        pytest.fail("it was taken")
