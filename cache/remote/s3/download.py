"""Downloads from a bucket: small blobs in one request, large ones in parallel ranges, passed on in order."""

from __future__ import annotations

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.remote.s3.bounded_pool import BoundedPool, OrderedMap
from mlcbuild.cache.remote.s3.client import S3Client, blob_name
from mlcbuild.cache.remote.s3.errors import S3Error, wrong_size
from mlcbuild.cache.remote.s3.operation import Operation
from mlcbuild.cache.remote.s3.retry import retry
from mlcbuild.cache.remote.transport import ErrorKind, Sink

_NO_RANGES = "NoRanges"


class BucketReader:
    """Downloads of one transport. At most as many ranges are in memory as `pool` has slots."""

    def __init__(self, client: S3Client, pool: BoundedPool) -> None:
        self._client = client
        self._pool = pool
        self._has_ranges = True

    def download(self, key: str, digest: Digest, sink: Sink) -> bool:
        with self._client.operation() as operation:
            if digest.size_bytes > self._client.settings.ranged_bytes and self._has_ranges:
                try:
                    return self._in_ranges(operation, key, digest, sink)
                except S3Error as error:
                    if error.code != _NO_RANGES:
                        raise
                    self._has_ranges = False
            else:
                return self._whole(operation, key, digest, sink)
        with self._client.operation() as operation:
            return self._whole(operation, key, digest, sink)

    def _whole(self, operation: Operation, key: str, digest: Digest, sink: Sink) -> bool:
        with self._client.get(operation, key, blob_name(digest)) as body:
            if body is None:
                return False
            if body.length not in (-1, digest.size_bytes):
                raise wrong_size(body.doing, body.length, digest.size_bytes)
            for piece in body.pieces(digest.size_bytes):
                with operation.deadline.paused():
                    sink(piece)
        return True

    def _in_ranges(self, operation: Operation, key: str, digest: Digest, sink: Sink) -> bool:
        step = self._client.settings.range_bytes

        def fetch(first: int) -> list[bytes] | None:
            return retry(operation, lambda: self._range(operation, key, digest, first))

        with OrderedMap(self._pool, operation, fetch, range(0, digest.size_bytes, step)) as ranges:
            for number, pieces in enumerate(ranges):
                if pieces is None and number == 0:
                    operation.cancel()
                    return False
                if pieces is None:
                    raise S3Error(
                        f"{blob_name(digest)} at {self._client.settings.address} vanished while it was read",
                        code="Vanished",
                        kind=ErrorKind.TRANSIENT,
                    )
                with operation.deadline.paused():
                    while pieces:
                        sink(pieces.pop(0))
        return True

    def _range(self, operation: Operation, key: str, digest: Digest, first: int) -> list[bytes] | None:
        size = digest.size_bytes
        last = min(first + self._client.settings.range_bytes, size) - 1
        asked = {"Range": f"bytes={first}-{last}"}
        try:
            with self._client.get(operation, key, blob_name(digest), **asked) as body:
                if body is None:
                    return None
                if body.total != size:
                    raise wrong_size(body.doing, body.total, size)
                if not body.is_range:
                    raise S3Error(f"{body.doing}: the server sends no ranges", code=_NO_RANGES, kind=ErrorKind.UNUSABLE)
                return list(body.pieces(last - first + 1))
        except S3Error as error:
            if error.status == 416:
                raise wrong_size(
                    f"reading {blob_name(digest)} at {self._client.settings.address}", first, size
                ) from error
            raise
