"""A release below a prefix of a bucket: written so that it appears whole, and read as a folder is.

The files come first, and the provenance last: without it there is no release. An interrupted upload continues: an
object of the right size is read and compared, and not sent again if it is right.

Credentials, region and endpoint (AWS_ENDPOINT_URL) are found as the AWS tools find them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.remote.s3.bounded_pool import BoundedPool
from mlcbuild.cache.remote.s3.client import S3Client
from mlcbuild.cache.remote.s3.download import BucketReader
from mlcbuild.cache.remote.s3.errors import S3Error
from mlcbuild.cache.remote.s3.retry import retry
from mlcbuild.cache.remote.s3.settings import S3Settings
from mlcbuild.cache.remote.s3.upload import BucketWriter
from mlcbuild.cache.remote.transport import ErrorKind, Sink
from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.release.contents import ReleaseFile
from mlcbuild.release.folder_destination import NEVER_CHANGED
from mlcbuild.release.places import Listing

_ATTEMPTS = 3


class Bucket:
    """`address` is `s3://bucket/prefix`. Raises UsageError for anything else. To be closed."""

    def __init__(self, address: str) -> None:
        try:
            settings = S3Settings.of_address(address)
        except ValueError as error:
            raise UsageError(f"{address}: {error}") from None
        if not settings.prefix:
            raise UsageError(f"{address} has no prefix", advice=("a release is not a whole bucket: s3://bucket/NAME",))
        self._prefix = f"{settings.prefix}/"
        self._client = S3Client(settings)
        self._pool = BoundedPool(settings.connections)
        self._reader = BucketReader(self._client, self._pool)
        self._writer = BucketWriter(self._client, self._pool)
        self._sizes: dict[str, int] | None = None

    @property
    def address(self) -> str:
        return self._client.settings.address

    def close(self) -> None:
        self._pool.close()
        self._client.close()

    # Reading.

    def listing(self) -> Listing:
        """Raises CacheError; FileNotFoundError if there is no object."""
        sizes = self._listed()
        if not sizes:
            raise FileNotFoundError(self.address)
        return Listing(sizes=sizes)

    def _listed(self) -> dict[str, int]:
        if self._sizes is None:
            sizes: dict[str, int] = {}
            more: dict[str, str] = {}
            while True:
                page = self._page(more)
                for each in page.get("Contents", ()):
                    sizes[each["Key"].removeprefix(self._prefix)] = int(each["Size"])
                if not page.get("IsTruncated"):
                    break
                more = {"ContinuationToken": page["NextContinuationToken"]}
            self._sizes = sizes
        return self._sizes

    def _page(self, more: dict[str, str]) -> dict[str, Any]:
        asked = {"Prefix": self._prefix, **more}
        with self._client.operation() as operation:
            return retry(
                operation, lambda: self._client.send(operation, "list_objects_v2", "the list of objects", asked)
            )

    def read(self, path: str) -> bytes:
        pieces: list[bytes] = []
        self._download(path, pieces.append)
        return b"".join(pieces)

    def sha256(self, path: str, told: Callable[[int], object] = lambda _: None) -> str:
        digest = hashlib.sha256()

        def sink(piece: bytes) -> None:
            digest.update(piece)
            told(len(piece))

        self._download(path, sink)
        return digest.hexdigest()

    def _download(self, path: str, sink: Sink) -> None:
        """Raises OSError for an object that has gone, CacheError for everything else."""
        size = self._listed()[path]
        if size and not self._reader.download(self._prefix + path, Digest(hash="0" * 64, size_bytes=size), sink):
            raise FileNotFoundError(2, "it has gone", path)

    # Writing.

    def holds(self, files: Sequence[ReleaseFile], *, is_same_provenance: Callable[[bytes], bool]) -> bool:
        """Whether the prefix holds exactly these files. Raises UsageError if it holds another release, or files that
        are of no release.

        The last file is the provenance, whose signature may be another one each time.
        """
        there = self._listed()
        *others, provenance = files
        strangers = sorted(there.keys() - {file.path for file in files})
        if strangers:
            raise UsageError(
                f"{self.address} has files that are not of this release, such as {strangers[0]}",
                advice=(NEVER_CHANGED,),
            )
        if provenance.path not in there:
            return False
        whole = there.keys() == {file.path for file in files} and is_same_provenance(self.read(provenance.path))
        if whole and all(self._is_right(file) for file in others):
            return True
        raise UsageError(f"{self.address} holds something else than this release", advice=(NEVER_CHANGED,))

    def write(self, files: Sequence[ReleaseFile], *, told: Callable[[int], object]) -> int:
        """Send what is not there, the last file last. Returns the number of files that were there.

        `told` is called with numbers of bytes. Raises CacheError, and LocalEnvironmentError if a source is not what its
        digest says.
        """
        kept = 0
        for file in files:
            if self._is_right(file):
                kept += 1
                told(file.size_bytes)
            else:
                self._send(file, told)
        self._sizes = None
        return kept

    def _is_right(self, file: ReleaseFile) -> bool:
        return self._listed().get(file.path) == file.size_bytes and self.sha256(file.path) == file.sha256

    def _send(self, file: ReleaseFile, told: Callable[[int], object]) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._send_once(file)
            except S3Error as error:
                if error.kind is not ErrorKind.TRANSIENT or attempt == _ATTEMPTS:
                    raise
            else:
                told(file.size_bytes)
                return

    def _send_once(self, file: ReleaseFile) -> None:
        key = self._prefix + file.path
        if file.source is None:
            self._writer.write(key, file.path, file.data, replace=True)
            return
        digest = hashlib.sha256()
        with file.source.open("rb") as stream:
            while piece := stream.read(1 << 20):
                digest.update(piece)
        if digest.hexdigest() != file.sha256:
            raise LocalEnvironmentError(
                f"{file.path} changed while the release was written", advice=("run the same command again",)
            )
        sent = Digest(hash=file.sha256, size_bytes=file.size_bytes)
        self._writer.upload(key, sent, file.source, replace=True, on_sent=lambda _count: None)
