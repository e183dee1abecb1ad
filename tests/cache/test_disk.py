"""The disk store serves what was stored or says that it is missing; nothing else, whatever happens to the
disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mlcbuild.cache import integrity, reapi
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore, default_root
from mlcbuild.cache.store import BlobMissingError
from mlcbuild.cache.temporaries import temporary_prefix
from mlcbuild.errors import CacheError, LocalEnvironmentError

BLAKE3 = DigestFunction.BLAKE3
KEY = BLAKE3.of_bytes(b"an encoded action")


def result_of(digest: Digest, worker: str = "w") -> reapi.ActionResult:
    return reapi.ActionResult(
        output_files=(reapi.OutputFile(path="out", digest=digest),),
        execution_metadata=reapi.ExecutedActionMetadata(worker=worker),
    )


def blob_path(store: DiskStore, digest: Digest) -> Path:
    return store.root / "v1" / store.function.value / "cas" / digest.hash[:2] / digest.hash


def files_in(store: DiskStore, folder: str) -> list[str]:
    path = store.root / "v1" / store.function.value / folder
    return sorted(file.name for file in path.rglob("*") if file.is_file()) if path.exists() else []


def damage(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)


def run_python(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, complaints = process.communicate(timeout=120)
    assert process.returncode == 0, complaints
    return output


# What is stored


@pytest.mark.parametrize("function", list(DigestFunction))
def test_bytes_come_back(tmp_path: Path, function: DigestFunction) -> None:
    store = DiskStore(tmp_path, function)
    for data in (b"", b"a", b"\0" * 5000):
        digest = store.put_bytes(data)
        assert digest == function.of_bytes(data)
        assert store.read(digest) == data
        assert store.path_of(digest).read_bytes() == data
        with store.open(digest) as stream:
            assert stream.read() == data
        assert store.missing([digest]) == ()


def test_blobs_lie_by_function_and_hash_and_are_read_only(store: DiskStore) -> None:
    digest = store.put_bytes(b"hello")
    path = store.path_of(digest)
    assert path == blob_path(store, digest)
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_the_empty_blob_is_always_there(store: DiskStore) -> None:
    empty = BLAKE3.of_bytes(b"")
    assert store.missing([empty]) == ()
    blob_path(store, empty).unlink()
    assert store.missing([empty]) == ()
    assert store.read(empty) == b""
    assert store.path_of(empty).read_bytes() == b""


def test_missing_blobs_are_named_once_and_in_order(store: DiskStore) -> None:
    one, two, three = (BLAKE3.of_bytes(data) for data in (b"1", b"2", b"3"))
    store.put_bytes(b"2")
    assert store.missing([three, one, two, three]) == (three, one)
    with pytest.raises(BlobMissingError) as caught:
        store.read(one)
    assert caught.value.digest == one


def test_a_digest_of_the_wrong_size_is_not_there_and_harms_nothing(store: DiskStore) -> None:
    digest = store.put_bytes(b"hello")
    wrong = Digest(digest.hash, 4)
    assert store.missing([wrong]) == (wrong,)
    for fetch in (store.read, store.path_of, store.open):
        with pytest.raises(BlobMissingError):
            fetch(wrong)
    assert store.read(digest) == b"hello"


def test_a_file_is_copied_or_moved_in(store: DiskStore, tmp_path: Path) -> None:
    file = tmp_path / "é 漢.bin"
    file.write_bytes(b"x" * 3_000_000)
    file.chmod(0o755)
    digest = store.put_file(file)
    assert digest == BLAKE3.of_bytes(b"x" * 3_000_000)
    assert stat.S_IMODE(file.stat().st_mode) == 0o755
    assert stat.S_IMODE(store.path_of(digest).stat().st_mode) == 0o444
    assert store.put_file(file, move=True) == digest
    assert not file.exists()
    assert store.read(digest) == b"x" * 3_000_000
    assert files_in(store, "tmp") == []


def test_a_moved_file_keeps_its_inode(store: DiskStore, tmp_path: Path) -> None:
    file = tmp_path / "output"
    file.write_bytes(b"big")
    inode = file.stat().st_ino
    assert store.path_of(store.put_file(file, move=True)).stat().st_ino == inode
    assert not file.exists()


def test_moving_one_of_two_names_of_a_file_leaves_the_other_writable_and_apart(
    store: DiskStore, tmp_path: Path
) -> None:
    file, other = tmp_path / "output", tmp_path / "other"
    file.write_bytes(b"content")
    other.hardlink_to(file)
    digest = store.put_file(file, move=True)
    other.write_bytes(b"CHANGED")
    assert not file.exists()
    assert store.read(digest) == b"content"


def test_only_regular_files_are_taken(store: DiskStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ValueError, match="not a regular file"):
            store.put_file(path)
    with pytest.raises(FileNotFoundError):
        store.put_file(tmp_path / "nothing")
    assert files_in(store, "tmp") == []


def test_copies_without_help_of_the_kernel_are_whole(
    store: DiskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EXDEV, "not here")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    file = tmp_path / "big"
    file.write_bytes(os.urandom(2_500_000))
    assert store.read(store.put_file(file)) == file.read_bytes()


def test_the_cache_folder_follows_the_xdg_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_root() == Path("/somewhere/mlcbuild")
    monkeypatch.setenv("HOME", "/home/ada")
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert default_root() == Path("/home/ada/.cache/mlcbuild")


# Damage


@pytest.mark.parametrize(
    "damaged", [b"", b"hell", b"hellp", b"hello!", b"\0\0\0\0\0"], ids=["empty", "cut", "flipped", "longer", "zeros"]
)
@pytest.mark.parametrize("attributes", [True, False], ids=["attribute", "index"])
def test_damaged_blobs_are_never_served(
    tmp_path: Path, damaged: bytes, attributes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not attributes:
        monkeypatch.setattr(integrity, "write_attribute", lambda *_: False)
    digest = DiskStore(tmp_path, BLAKE3).put_bytes(b"hello")
    store = DiskStore(tmp_path, BLAKE3)
    assert (files_in(store, "checksums") != []) == (not attributes)
    damage(blob_path(store, digest), damaged)
    with pytest.raises(BlobMissingError, match="damaged"):
        store.path_of(digest)
    assert store.missing([digest]) == (digest,)
    assert files_in(store, "corrupt") == [digest.hash]
    assert store.put_bytes(b"hello") == digest
    assert store.read(digest) == b"hello"


def test_damage_after_the_first_read_is_found(store: DiskStore) -> None:
    digest = store.put_bytes(b"hello")
    assert store.read(digest) == b"hello"
    damage(blob_path(store, digest), b"hellp")
    with pytest.raises(BlobMissingError):
        store.read(digest)


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    data = bytes(range(48))
    for bit in range(0, len(data) * 8, 7):
        store = DiskStore(tmp_path, BLAKE3)
        digest = store.put_bytes(data)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        damage(blob_path(store, digest), bytes(flipped))
        with pytest.raises(BlobMissingError):
            store.read(digest)


def test_a_blob_whose_checksum_was_lost_is_proved_by_its_name(store: DiskStore) -> None:
    whole, broken = store.put_bytes(b"whole"), store.put_bytes(b"broken")
    for digest in (whole, broken):
        path = blob_path(store, digest)
        if integrity.ATTRIBUTE in os.listxattr(path):
            path.chmod(0o644)
            os.removexattr(path, integrity.ATTRIBUTE)
        for index in (store.root / "v1/blake3/checksums").rglob(digest.hash):
            index.unlink()
    damage(blob_path(store, broken), b"brokem")
    assert store.read(whole) == b"whole"
    with pytest.raises(BlobMissingError):
        store.read(broken)


def test_a_truncated_blob_counts_as_missing_and_is_replaced(store: DiskStore) -> None:
    digest = store.put_bytes(b"hello")
    damage(blob_path(store, digest), b"hel")
    assert store.missing([digest]) == (digest,)
    store.put_bytes(b"hello")
    assert store.read(digest) == b"hello"


# Results


def test_results_come_back_and_are_replaced(store: DiskStore) -> None:
    assert store.get(KEY) is None
    digest = store.put_bytes(b"out")
    for worker in ("one", "two"):
        store.put(KEY, result_of(digest, worker))
        assert store.get(KEY) == result_of(digest, worker)
    assert files_in(store, "tmp") == []


def test_failures_are_not_kept(store: DiskStore) -> None:
    with pytest.raises(ValueError, match="exit code 1"):
        store.put(KEY, reapi.ActionResult(exit_code=1))
    assert store.get(KEY) is None


def test_torn_results_are_misses_and_go_away(store: DiskStore) -> None:
    store.put(KEY, result_of(store.put_bytes(b"out")))
    path = store.root / "v1/blake3/ac" / KEY.hash[:2] / KEY.hash
    whole = path.read_bytes()
    torn = [whole[:length] for length in range(len(whole))]
    torn += [whole + b"\0", b"\0" * len(whole), whole[:5] + b"!" + whole[6:]]
    for data in torn:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        assert store.get(KEY) is None
        assert not path.exists()
    store.put(KEY, result_of(store.put_bytes(b"out")))
    assert store.get(KEY) is not None


def test_a_result_with_a_good_checksum_that_is_no_message_is_a_miss(store: DiskStore) -> None:
    path = store.root / "v1/blake3/ac" / KEY.hash[:2] / KEY.hash
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x13\x14" + integrity.checksum_of_bytes(b"\x13\x14"))
    assert store.get(KEY) is None


def test_an_unreadable_result_is_a_miss(store: DiskStore) -> None:
    path = store.root / "v1/blake3/ac" / KEY.hash[:2] / KEY.hash
    path.mkdir(parents=True)
    assert store.get(KEY) is None


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.ESTALE, errno.EACCES])
def test_a_result_that_cannot_be_read_now_is_a_miss_and_stays(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    store.put(KEY, result_of(store.put_bytes(b"out")))

    def fail(_path: str) -> bytes:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr("mlcbuild.cache.disk._read_all", fail)
        assert store.get(KEY) is None
    assert store.get(KEY) is not None


# Something else than a file


def put_elsewise(path: Path, kind: str) -> None:
    """Put something in a file's place that is no file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        return  # It is there still.
    path.unlink(missing_ok=True)
    match kind:
        case "folder":
            path.mkdir()
        case "full folder":
            (path / "deep").mkdir(parents=True)
            (path / "deep/file").write_text("x")
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path.name)
        case "link to a folder":
            path.symlink_to("/usr")
        case "link to itself":
            path.symlink_to(path.name)
        case "dangling link":
            path.symlink_to("nothing")


NO_FILES = ["folder", "full folder", "pipe", "socket", "link to a folder", "link to itself", "dangling link"]


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_in_a_blobs_place_is_a_missing_blob_and_is_replaced(
    store: DiskStore, tmp_path: Path, kind: str
) -> None:
    digest = store.put_bytes(b"hello")
    put_elsewise(blob_path(store, digest), kind)
    for read in (store.read, store.open, store.path_of):
        with pytest.raises(BlobMissingError):
            read(digest)
        assert store.missing([digest]) == (digest,)
    put_elsewise(blob_path(store, digest), kind)
    assert store.put_bytes(b"hello") == digest
    assert store.read(digest) == b"hello"
    for number in range(2):  # Twice: what is set aside must not stand in the way of the next.
        put_elsewise(blob_path(store, digest), kind)
        source = tmp_path / f"source{number}"
        source.write_bytes(b"hello")
        assert store.put_file(source, move=True) == digest
        put_elsewise(blob_path(store, digest), kind)
        with store.receive(digest) as reception:
            reception.write(b"hello")
        assert store.read(digest) == b"hello"


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_in_a_results_place_is_a_miss_and_is_replaced(store: DiskStore, kind: str) -> None:
    result = result_of(store.put_bytes(b"out"))
    path = Path(store.result_path(KEY.hash))
    put_elsewise(path, kind)
    assert not store.contains(KEY)
    assert store.get(KEY) is None
    put_elsewise(path, kind)
    store.put(KEY, result)
    assert store.contains(KEY)
    assert store.get(KEY) == result


@pytest.mark.parametrize("folder", ["cas", "ac", "checksums"])
def test_a_file_in_a_folders_place_is_replaced(store: DiskStore, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrity, "write_attribute", lambda *_: False)
    digest = BLAKE3.of_bytes(b"hello")
    name = (KEY if folder == "ac" else digest).hash[:2]
    place = store.root / "v1/blake3" / folder / name
    place.parent.mkdir(exist_ok=True)
    place.write_text("a file")
    assert store.missing([digest]) == (digest,)
    assert store.get(KEY) is None
    with pytest.raises(BlobMissingError):
        store.read(digest)
    store.put_bytes(b"hello")
    store.put(KEY, result_of(digest))
    assert DiskStore(store.root, BLAKE3).read(digest) == b"hello"
    assert store.get(KEY) == result_of(digest)


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


def test_a_store_that_cannot_be_made_says_where_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CacheError, match="there must be a folder") as caught:
        DiskStore(tmp_path / "file", BLAKE3)
    assert str(tmp_path / "file") in str(caught.value)
    with pytest.raises(CacheError, match="XDG_CACHE_HOME"):
        DiskStore(Path("/proc/here"), BLAKE3)


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


def test_a_blob_removed_by_somebody_else_is_missing_and_can_be_stored_again(store: DiskStore) -> None:
    digest = store.put_bytes(b"hello")
    store.read(digest)
    blob_path(store, digest).unlink()
    with pytest.raises(BlobMissingError):
        store.read(digest)
    store.put_bytes(b"hello")
    assert store.read(digest) == b"hello"


@pytest.mark.parametrize("name", ["v1", "v1/blake3", "v1/blake3/cas", "v1/blake3/tmp"])
def test_a_file_in_the_place_of_the_stores_own_folders_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    place = tmp_path / "store" / name
    place.parent.mkdir(parents=True)
    place.write_text("a file")
    with pytest.raises(CacheError) as raised:
        DiskStore(tmp_path / "store", BLAKE3)
    assert str(place) in " ".join(raised.value.advice)
    assert place.read_text() == "a file"
