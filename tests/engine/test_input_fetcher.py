"""Source files in the store, for several actions that begin at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.engine.input_fetcher import InputFetcher
from mlcbuild.engine.scheduler_events import SourceDigested


def test_a_source_that_several_actions_want_at_once_is_stored_once(tmp_path: Path) -> None:
    function = DigestFunction.BLAKE3
    store = DiskStore(tmp_path / "cache", function)
    fetcher = InputFetcher(
        workspace=tmp_path,
        store=store,
        digests=FileDigests(tmp_path, function),
        remote=None,
        on_failure=lambda _: None,
    )
    for number in range(20):
        path = f"{number}.txt"
        (tmp_path / path).write_text(path * 1000)
        for job in fetcher.digesting([path]):
            (digested,) = job()
        assert isinstance(digested, SourceDigested)
        digest = digested.digest
        fetch = partial(inode_after_fetching, fetcher, store, digest, path)
        with ThreadPoolExecutor(8) as threads:
            assert len(set(threads.map(lambda _, fetch=fetch: fetch(), range(8)))) == 1, "an action sees another file"


def inode_after_fetching(fetcher: InputFetcher, store: DiskStore, digest: Digest, path: str) -> int:
    assert fetcher.fetch([digest], [path]).missing == ()
    return Path(store.path_of(digest)).stat().st_ino
