"""Logs of records in a remote cache, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.remote.configuration import RemoteConfiguration
from mlcbuild.cache.remote.opening import open_remote
from mlcbuild.cache.remote.policy import RemotePolicy, RemoteRole, Upload
from mlcbuild.tuning.remote_log import RemoteLog
from tests.tuning.recorded import PLATFORM

BLAKE3 = DigestFunction.BLAKE3
WRITES = RemotePolicy(role=RemoteRole.READ_WRITE, upload=Upload.RESULTS)


@contextmanager
def log_of(folder: Path, at: str | RemoteConfiguration, policy: RemotePolicy = WRITES) -> Iterator[RemoteLog]:
    """The log as a machine with a disk cache of its own sees it. `at` is an address, or says all of the cache."""
    configuration = RemoteConfiguration(address=at, policy=policy) if isinstance(at, str) else at
    remote = open_remote(configuration, BLAKE3)
    assert remote is not None
    remote.start(lambda _: None)
    store = DiskStore(folder, BLAKE3)
    try:
        yield RemoteLog(remote=remote, store=store, of_bytes=BLAKE3.of_bytes, platform=PLATFORM)
    finally:
        remote.close()
        store.release()
