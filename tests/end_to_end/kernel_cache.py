"""Kernels that the builds of a session take from each other, although each has a disk cache of its own.

Most of a small model's build is the compilation of its kernels, and most tests are about something else. What they
build beside kernels runs as ever.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cli.arguments.options import RECORD_DIRECTORY, STATE_DIRECTORY
from mlcbuild.cli.log.records import records
from mlcbuild.engine.action_results import blobs_of

OF_KERNELS = frozenset({"ScheduleKernel", "CompileKernel", "CompileDevice", "FatBinary"})
_STORE = "mlcbuild/v1/blake3"


class KernelCache:
    """Results and blobs of kernels, below `folder`, as links to the files of the disk caches that had them first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def used_by(self, root: Path, cache: Path) -> Iterator[None]:
        """Put the kernels into the disk cache of builds in the workspace `root`, and take over what these compiled.

        `cache` is `XDG_CACHE_HOME`. Nothing is taken over from a block that fails.
        """
        self.lend(cache)
        yield
        self.keep(root, cache)

    def lend(self, cache: Path) -> None:
        for path in (self._folder / "cas", self._folder / "checksums", self._folder / "ac"):
            if path.is_dir():
                shutil.copytree(path, cache / _STORE / path.name, copy_function=_link, dirs_exist_ok=True)

    def keep(self, root: Path, cache: Path) -> None:
        store = DiskStore(cache / "mlcbuild", DigestFunction.BLAKE3)
        base = cache / _STORE
        for build in records(root / STATE_DIRECTORY / RECORD_DIRECTORY):
            for action in build.actions():
                if action["mnemonic"] not in OF_KERNELS or not action.get("key"):
                    continue
                key = str(action["key"])
                result = store.get(Digest(key, 0))
                if result is None:
                    continue
                named = (*blobs_of(result), *([result.stdout_digest] if result.stdout_digest else []))
                for name in (blob.hash for blob in named):
                    self._take(base, f"cas/{name[:2]}/{name}")
                    self._take(base, f"checksums/{name[:2]}/{name}")
                self._take(base, f"ac/{key[:2]}/{key}")  # last: a result without blobs is none
        store.release()

    def _take(self, base: Path, path: str) -> None:
        if (base / path).exists() and not (self._folder / path).exists():
            (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            _link(str(base / path), str(self._folder / path))


def _link(source: str, destination: str) -> str:
    with contextlib.suppress(FileExistsError):
        os.link(source, destination)
    return destination
