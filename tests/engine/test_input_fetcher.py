"""Source files in the store, for several actions that begin at the same time."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from mlcbuild.cache import file_digests
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.engine import input_fetcher
from mlcbuild.engine.input_fetcher import InputFetcher
from mlcbuild.engine.scheduler_events import SourceDigested

FUNCTION = DigestFunction.BLAKE3


def fetcher_of(folder: Path, store: DiskStore, digests: FileDigests | None = None) -> InputFetcher:
    return InputFetcher(
        workspace=folder,
        store=store,
        digests=digests or FileDigests(folder, FUNCTION),
        remote=None,
        on_failure=lambda _: None,
    )


def digest_of(fetcher: InputFetcher, path: str) -> Digest:
    for job in fetcher.digesting([path]):
        (digested,) = job()
    assert isinstance(digested, SourceDigested)
    return digested.digest


def test_a_source_that_several_actions_want_at_once_is_stored_once(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "cache", FUNCTION)
    fetcher = fetcher_of(tmp_path, store)
    for number in range(20):
        path = f"{number}.txt"
        (tmp_path / path).write_text(path * 1000)
        digest = digest_of(fetcher, path)
        fetch = partial(inode_after_fetching, fetcher, store, digest, path)
        with ThreadPoolExecutor(8) as threads:
            assert len(set(threads.map(lambda _, fetch=fetch: fetch(), range(8)))) == 1, "an action sees another file"


def inode_after_fetching(fetcher: InputFetcher, store: DiskStore, digest: Digest, path: str) -> int:
    assert fetcher.fetch([digest], [path]).missing == ()
    return Path(store.path_of(digest)).stat().st_ino


def test_only_large_sources_are_read_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_fetcher, "_IN_PLACE_FROM_BYTES", 1000)
    fetcher = fetcher_of(tmp_path, DiskStore(tmp_path / "cache", FUNCTION))
    (tmp_path / "large").write_bytes(bytes(1000))
    (tmp_path / "small").write_bytes(bytes(999))
    large, small = (digest_of(fetcher, path) for path in ("large", "small"))
    assert fetcher.in_place([large, small], ["large", "small"]) == {large: "large"}
    assert fetcher.in_place([small], ["large", "small"]) == {}


def test_what_is_read_in_place_was_hashed_by_this_build(tmp_path: Path) -> None:
    """A stat that an earlier build remembers says that a file is unchanged, but others may take what is made of it."""
    source, store = tmp_path / "source", DiskStore(tmp_path / "cache", FUNCTION)
    source.write_bytes(b"text")
    os.utime(source, (1, 1))
    digests = FileDigests(tmp_path, FUNCTION, tmp_path / "digests")
    with mock.patch.object(file_digests, "is_racy", return_value=False):
        digests.of("source")
        digests.save()
        digests = FileDigests(tmp_path, FUNCTION, tmp_path / "digests")
        fetcher = fetcher_of(tmp_path, store, digests)
        digest_of(fetcher, "source")
        with mock.patch.object(digests, "_hash", wraps=digests._hash) as hashing:
            for _ in range(2):
                assert fetcher.fetch([], ["source"], in_place=["source"]).error == ""
            assert hashing.call_count == 1
            source.write_bytes(b"TEXT")
            assert "changed during the build" in fetcher.fetch([], ["source"], in_place=["source"]).error
