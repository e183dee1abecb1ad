"""A Transport to S3 (cache/remote/transport.py). Other modules implement its methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.s3.bounded_pool import BoundedPool, OrderedMap
from mlcbuild.cache.remote.s3.client import S3Client, blob_name
from mlcbuild.cache.remote.s3.download import BucketReader
from mlcbuild.cache.remote.s3.errors import S3Error
from mlcbuild.cache.remote.s3.layout import ObjectKeys
from mlcbuild.cache.remote.s3.operation import Operation
from mlcbuild.cache.remote.s3.settings import S3Settings
from mlcbuild.cache.remote.s3.upload import BucketWriter
from mlcbuild.cache.remote.throughput_deadline import ThroughputDeadline
from mlcbuild.cache.remote.transport import ErrorKind, OnSent, Sink, ignore_progress

_LARGEST_RESULT = 64 << 20
_LOOK_UPS_A_SECOND = 20  # the minimum of all threads together, for the time limit


class S3Transport:
    """A bucket and prefix. The constructor makes no request. Raises ValueError like `ObjectKeys`."""

    def __init__(self, settings: S3Settings, function: DigestFunction) -> None:
        self._function = function
        self._keys = ObjectKeys(prefix=settings.prefix, function=function, layout=settings.layout)
        self._client = S3Client(settings)
        self._pool = BoundedPool(settings.connections)
        self._reader = BucketReader(self._client, self._pool)
        self._writer = BucketWriter(self._client, self._pool)

    @property
    def address(self) -> str:
        return self._client.settings.address

    @property
    def function(self) -> DigestFunction:
        return self._function

    def missing(self, digests: Sequence[Digest]) -> tuple[Digest, ...]:
        """One HEAD per blob, in parallel.

        S3 has no request for many keys. A listing would need another permission. It returns everything below a prefix,
        1,000 keys per request, one page after the other. With the blobs of all builds under 256 prefixes, that takes
        more requests than one per blob.
        """
        asked = tuple(dict.fromkeys(digests))
        seconds = self._client.settings.deadlines.total + len(asked) / _LOOK_UPS_A_SECOND
        with Operation(ThroughputDeadline(slack=seconds)) as operation:

            def is_missing(digest: Digest) -> bool:
                size = self._client.size_of(operation, self._keys.blob(digest), blob_name(digest))
                return size != digest.size_bytes

            if len(asked) == 1:
                return asked if is_missing(asked[0]) else ()
            with OrderedMap(self._pool, operation, is_missing, asked) as answers:
                return tuple(digest for digest, absent in zip(asked, answers, strict=True) if absent)

    def download(self, digest: Digest, sink: Sink) -> bool:
        return self._reader.download(self._keys.blob(digest), digest, sink)

    def upload(self, digest: Digest, path: Path, *, replace: bool = False, on_sent: OnSent = ignore_progress) -> bool:
        return self._writer.upload(self._keys.blob(digest), digest, path, replace=replace, on_sent=on_sent)

    def read_result(self, key: Digest) -> bytes | None:
        what = _result_name(key)
        with (
            self._client.operation() as operation,
            self._client.get(operation, self._keys.result(key), what) as body,
        ):
            if body is None:
                return None
            if not 0 <= body.length <= _LARGEST_RESULT:
                told = f"{body.doing}: {body.length} bytes are too large for a result"
                raise S3Error(told, code="TooLarge", kind=ErrorKind.ITEM)
            return b"".join(body.pieces(body.length))

    def write_result(self, key: Digest, data: bytes, *, replace: bool = False) -> bool:
        return self._writer.write(self._keys.result(key), _result_name(key), data, replace=replace)

    def close(self) -> None:
        self._pool.close()
        self._client.close()


def _result_name(key: Digest) -> str:
    return f"result {key.hash[:16]}…"
