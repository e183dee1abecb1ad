"""What one user has built in one place, another takes whole in another, through a bucket: nothing runs there.

The other has a user id, home, folders of XDG, checkout, virtual environment, interpreter, umask, locale, time zone,
clock, host name and number of jobs of his own, an empty disk cache, and may only read the bucket.
"""

from __future__ import annotations

import os
import random
import stat
import uuid
from pathlib import Path

import pytest

from tests.end_to_end.surroundings import Surroundings, usual
from tests.end_to_end.synthetic import Synthetic
from tests.remote.filled import CPU_PACKAGE, CUDA_LIBRARY, Bucket, Built, build, clone, commit, with_variables
from tests.remote.seaweed import Seaweed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def second(filled: Bucket, elsewhere: Surroundings) -> Built:
    clone(filled.checkout, elsewhere)
    return build(with_variables(elsewhere, **filled.variables()), CPU_PACKAGE, CUDA_LIBRARY)


def test_the_first_user_ran_everything(filled: Bucket) -> None:
    assert set(filled.first.statuses.values()) == {"executed_local"}
    assert filled.first.report["remote"]["results_uploaded"] == len(filled.first.statuses) > 100
    assert filled.first.report["remote"]["uploads_dropped"] == 0


def test_the_second_is_told_to_be_another_in_all_that_a_key_must_not_hold(filled: Bucket, second: Built) -> None:
    first, other = filled.first.place, second.place
    assert first.python != other.python
    assert first.umask != other.umask
    assert len(str(first.root)) != len(str(other.root))
    assert " " in str(other.root)
    assert not str(other.root).isascii()
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TMPDIR", "LANG", "TZ", "PATH", "USER"):
        assert first.variables.get(name) != other.variables[name], name
    assert not (Path(other.variables["HOME"]) / "tiny.gguf").exists(), "who hits needs no file that was fetched"


def test_the_second_has_a_user_id_of_his_own(second: Built) -> None:
    if second.place.user is None:
        pytest.skip("only root can build as another user, who must reach what is installed")
    files = [second.place.root / path for path in second.placed()]
    files += [path for path in second.place.cache.rglob("*") if path.is_file()]
    assert {path.stat().st_uid for path in files} == {second.place.user} != {os.geteuid()}


def test_every_action_hits_and_nothing_runs(filled: Bucket, second: Built) -> None:
    assert {name: status for name, status in second.statuses.items() if status != "remote_hit"} == {}
    assert second.keys == filled.first.keys
    remote = second.report["remote"]
    assert remote["hits"] == len(filled.first.statuses)
    assert sum(remote["misses"].values()) == 0
    assert remote["results_uploaded"] == 0


def test_what_is_placed_is_the_same_to_the_byte_and_the_mode(filled: Bucket, second: Built) -> None:
    first, other = filled.first.placed(), second.placed()
    assert first == other
    assert {stat.S_IMODE(mode) for _, mode in other.values()} == {0o444, 0o555}
    assert sum(name.endswith(".so") for name in other) == 2
    assert sum(len(content) for content, _ in other.values()) > 200_000


def test_a_second_build_is_up_to_date_and_asks_nobody(second: Built) -> None:
    nobody = with_variables(
        second.place, MLCBUILD_REMOTE="s3://nowhere/x", MLCBUILD_REMOTE_ENDPOINT="http://127.0.0.1:9"
    )
    again = build(nobody, CPU_PACKAGE, CUDA_LIBRARY)
    assert set(again.statuses.values()) == {"up_to_date"}


@pytest.mark.parametrize("seed", [1, 2])
def test_any_workspace(seed: int, seaweed: Seaweed, elsewhere: Surroundings, tmp_path: Path) -> None:
    world = Synthetic.random(random.Random(seed), 60)
    place = usual(tmp_path / "first")
    world.write(place.root)
    commit(place.root)
    bucket = Bucket(
        server=seaweed,
        prefix=f"synthetic/{uuid.uuid4().hex}",
        checkout=place.root,
        first=Built(place=place, statuses={}, keys={}, report={}),
    )
    first = build(with_variables(place, **bucket.variables(writes=True)), "//...")
    other = elsewhere.at(f"synthetic {seed}")
    clone(place.root, other)
    second = build(with_variables(other, **bucket.variables()), "//...")
    assert set(second.statuses.values()) <= {"remote_hit", "disk_hit"}
    assert second.keys == first.keys
    assert second.placed() == first.placed()
    expected = world.expect([target.label for target in world.targets()])
    assert not expected.failed
    folder = other.root / "mlcbuild-out/default"
    for label, files in expected.outputs.items():
        for path, (content, executable) in files.items():
            file = folder / label.removeprefix("//").replace(":", "/").lstrip("/") / path
            assert (file.read_bytes(), bool(file.stat().st_mode & 0o100)) == (content, executable)
    assert any(executable for files in expected.outputs.values() for _, executable in files.values())
