"""Writers of a disk store that run out of space, are killed, or write at the same time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.temporaries import temporary_prefix
from mlcbuild.errors import LocalEnvironmentError
from tests.cache.disk_files import BLAKE3, KEY, files_in, finish, result_of, run_python

# A full disk

_FILL = """
import sys
from pathlib import Path
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.store import BlobMissingError
from mlcbuild.cache.temporaries import temporary_prefix
from mlcbuild.cache import reapi
from mlcbuild.errors import LocalEnvironmentError
import os

root = Path(sys.argv[1])
store = DiskStore(root, DigestFunction.BLAKE3)
stored = []
try:
    for index in range(100):
        stored.append(store.put_bytes(bytes([index]) * 200_000))
except LocalEnvironmentError as error:
    assert "no space left" in str(error) and "XDG_CACHE_HOME" in str(error), error
else:
    raise SystemExit("the disk did not fill")
big = root.parent / "big"
assert len(stored) > 3, stored
assert os.listdir(root / "v1/blake3/tmp") == []
for index, digest in enumerate(stored):
    assert store.read(digest) == bytes([index]) * 200_000
blobs = [file for file in (root / "v1/blake3/cas").rglob("*") if file.is_file()]
assert len(blobs) == len(stored) + 1, blobs
(root / "v1/blake3/cas" / stored[0].hash[:2] / stored[0].hash).unlink()
assert store.read(store.put_bytes(b"small")) == b"small"
print("fine")
"""


def test_a_full_disk_is_told_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    command = 'mount -t tmpfs -o size=2m tmpfs "$1" && "$2" -c "$3" "$1/store"'
    finished = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, "sh", str(mounted), sys.executable, _FILL],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in finished.stderr or "mount" in finished.stderr:
        pytest.skip("no small file system can be mounted here")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "fine\n"


_LIMITED = """
import resource, sys
from pathlib import Path
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.errors import LocalEnvironmentError

store = DiskStore(Path(sys.argv[1]), DigestFunction.BLAKE3)
big = Path(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for put in (lambda: store.put_bytes(b"x" * 200_000), lambda: store.put_file(big)):
    try:
        put()
    except LocalEnvironmentError:
        continue
    raise SystemExit("it was stored")
print(store.read(store.put_bytes(b"small")))
"""


def test_a_write_that_stops_half_way_leaves_nothing(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"y" * 200_000)
    assert finish(run_python(_LIMITED, str(tmp_path / "store"), str(big))) == "b'small'\n"
    store = DiskStore(tmp_path / "store", BLAKE3)
    assert files_in(store, "tmp") == []
    assert len(files_in(store, "cas")) == 2
    assert big.exists()


def test_a_disk_that_fills_at_the_last_moment_publishes_nothing(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    for put in (lambda: store.put_bytes(b"data"), lambda: store.put(KEY, result_of(BLAKE3.of_bytes(b"")))):
        with pytest.raises(LocalEnvironmentError, match="no space left"):
            put()
    assert store.missing([BLAKE3.of_bytes(b"data")]) == (BLAKE3.of_bytes(b"data"),)
    assert store.get(KEY) is None
    assert files_in(store, "tmp") == []


# Several writers

_WRITE = """
import sys
from pathlib import Path
from mlcbuild.cache import reapi
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore

root, me = Path(sys.argv[1]), sys.argv[2]
sys.stdin.readline()
F = DigestFunction.BLAKE3
store = DiskStore(root, F)
for turn in range(150):
    data = b"%d" % turn * (1 + turn * 40)
    file = root.parent / f"{me}-{turn}"
    file.write_bytes(data)
    digest = store.put_file(file, move=True) if turn % 2 else store.put_bytes(data)
    assert digest == F.of_bytes(data)
    assert store.read(digest) == data
    key = F.of_bytes(b"key %d" % (turn % 10))
    result = reapi.ActionResult(
        output_files=(reapi.OutputFile(path=me * (turn + 1), digest=digest),),
        execution_metadata=reapi.ExecutedActionMetadata(worker=me),
    )
    store.put(key, result)
    seen = store.get(key)
    assert seen is not None
    assert set(seen.output_files[0].path) == set(seen.execution_metadata.worker)
    assert store.missing([seen.output_files[0].digest]) == ()
print("fine")
"""


def test_processes_that_write_the_same_store_never_see_half_of_anything(tmp_path: Path) -> None:
    writers = [run_python(_WRITE, str(tmp_path / "store"), name) for name in "abc"]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [finish(writer) for writer in writers] == ["fine\n"] * 3
    store = DiskStore(tmp_path / "store", BLAKE3)
    assert files_in(store, "tmp") == []
    assert files_in(store, "corrupt") == []
    for turn in range(10):
        assert store.get(BLAKE3.of_bytes(b"key %d" % turn)) is not None


def test_threads_may_share_a_store(store: DiskStore) -> None:
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(60):
                data = b"%d" % turn * 100
                assert store.read(store.put_bytes(data)) == data
                store.put(KEY, result_of(store.put_bytes(b"%d" % number)))
                assert store.get(KEY) is not None
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


_KILLED = """
import os, signal, sys
from pathlib import Path
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore

store = DiskStore(Path(sys.argv[1]), DigestFunction.BLAKE3)
os.fdatasync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
store.put_bytes(b"never seen")
"""


def test_what_a_killed_writer_left_is_invisible_and_swept_up(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "store", BLAKE3)
    killed = run_python(_KILLED, str(store.root))
    killed.communicate(timeout=60)
    assert killed.returncode == -9
    assert len(files_in(store, "tmp")) == 1
    digest = BLAKE3.of_bytes(b"never seen")
    assert store.missing([digest]) == (digest,)
    assert DiskStore(store.root, BLAKE3).missing([digest]) == (digest,)
    assert files_in(store, "tmp") == []


def test_files_of_living_writers_and_strangers_are_left_alone(store: DiskStore) -> None:
    folder = store.root / "v1/blake3/tmp"
    kept = [folder / f"{temporary_prefix()}1234", folder / "otherhost.1.99999.abcd", folder / "stray"]
    for path in kept:
        path.write_bytes(b"")
    DiskStore(store.root, BLAKE3)
    assert all(path.exists() for path in kept)
