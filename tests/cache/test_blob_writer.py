"""A blob that arrives in pieces is stored if it is the blob, whole; anything else leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cache import integrity
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.errors import LocalEnvironmentError

BLAKE3 = DigestFunction.BLAKE3
DATA = os.urandom(3000)
DIGEST = BLAKE3.of_bytes(DATA)


def left_over(store: DiskStore) -> list[Path]:
    return [path for path in (store.root / "v1" / "blake3" / "tmp").rglob("*") if path.is_file()]


def test_pieces_become_the_blob(store: DiskStore) -> None:
    with store.receive(DIGEST) as reception:
        for start in range(0, len(DATA), 700):
            reception.write(DATA[start : start + 700])
        assert store.missing([DIGEST]) == (DIGEST,)
    assert store.read(DIGEST) == DATA
    path = store.path_of(DIGEST)
    assert path.stat().st_mode & 0o777 == 0o444
    with path.open("rb") as stream:
        recorded = integrity.read_recorded(
            stream.fileno(), store.root / "v1/blake3/checksums" / DIGEST.hash[:2] / DIGEST.hash
        )
    assert recorded == integrity.checksum_of_bytes(DATA)
    assert left_over(store) == []


@pytest.mark.parametrize("pieces", [[], [DATA[:-1]], [DATA, b"x"], [DATA, DATA], [b"\0" * len(DATA)]])
def test_anything_else_is_thrown_away(store: DiskStore, pieces: list[bytes]) -> None:
    with store.receive(DIGEST) as reception:
        for piece in pieces:
            reception.write(piece)
        assert not reception.is_complete
    assert store.missing([DIGEST]) == (DIGEST,)
    assert left_over(store) == []


def test_a_restart_forgets_what_came(store: DiskStore) -> None:
    with store.receive(DIGEST) as reception:
        reception.write(DATA[:1000])
        reception.restart()
        reception.write(b"wrong" * 1000)
        reception.restart()
        reception.write(DATA)
    assert store.read(DIGEST) == DATA


def test_what_is_too_long_takes_no_space(store: DiskStore) -> None:
    with store.receive(DIGEST) as reception:
        for _ in range(100):
            reception.write(DATA)
        assert os.fstat(reception.descriptor).st_size <= len(DATA)


def test_who_fails_in_the_middle_leaves_nothing(store: DiskStore) -> None:
    def fail() -> None:
        with store.receive(DIGEST) as reception:
            reception.write(DATA)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert store.missing([DIGEST]) == (DIGEST,)
    assert left_over(store) == []


def test_a_full_disk_says_so(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    def receive() -> None:
        with store.receive(DIGEST) as reception:
            monkeypatch.setattr(os, "write", full)
            reception.write(DATA)

    with pytest.raises(LocalEnvironmentError, match="no space left"):
        receive()
    monkeypatch.undo()
    assert left_over(store) == []


@given(st.lists(st.one_of(st.just("restart"), st.binary(max_size=50)), max_size=12), st.binary(max_size=100))
def test_only_the_bytes_since_the_last_start_count(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | bytes], wanted: bytes
) -> None:
    store = DiskStore(tmp_path_factory.mktemp("store"), BLAKE3)
    come = b""
    with store.receive(BLAKE3.of_bytes(wanted)) as reception:
        for step in [*steps, "restart", wanted] if len(steps) % 2 else steps:
            if isinstance(step, str):
                reception.restart()
                come = b""
            else:
                reception.write(step)
                come += step
        assert reception.received == len(come)
        assert reception.is_complete == (come == wanted)
    assert (store.missing([BLAKE3.of_bytes(wanted)]) == ()) == (come == wanted or not wanted)
