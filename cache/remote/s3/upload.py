"""Uploads of files and bytes to a bucket. Existing objects are replaced only if that is requested."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.remote.s3.bounded_pool import BoundedPool
from mlcbuild.cache.remote.s3.client import S3Client, blob_name
from mlcbuild.cache.remote.s3.errors import S3Error, not_replaceable
from mlcbuild.cache.remote.s3.features import EndpointFeatures, UploadOptions
from mlcbuild.cache.remote.s3.multipart import Multipart
from mlcbuild.cache.remote.s3.operation import Operation
from mlcbuild.cache.remote.s3.retry import ATTEMPTS
from mlcbuild.cache.remote.s3.section import FileSection, crc32
from mlcbuild.cache.remote.transport import ErrorKind, OnSent, ignore_progress

_SMALL_BYTES = 1 << 20  # Smaller blobs are read once, and sent without waiting for "100 Continue".
_CONFLICT_SECONDS = 0.05
_FORBIDDEN = 403


class BucketWriter:
    """Uploads of one transport. Bodies are read while they are sent."""

    def __init__(self, client: S3Client, pool: BoundedPool) -> None:
        self._client = client
        # A server may accept a checksum of an object and reject one of a part.
        self._features = EndpointFeatures(client.settings.checksums)
        self._features_in_parts = EndpointFeatures(client.settings.checksums)
        self._multipart = Multipart(client, pool)

    def upload(self, key: str, digest: Digest, path: Path, *, replace: bool, on_sent: OnSent) -> bool:
        """False if the blob exists and must not be replaced. An object of another size is always replaced, because it
        cannot be the blob.
        """
        what = blob_name(digest)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _unreadable(path, error.strerror or "cannot be opened") from error
        try:
            size = os.fstat(descriptor).st_size
            if size != digest.size_bytes:
                raise _unreadable(path, f"has {size} bytes, its digest says {digest.size_bytes}")
            if size > self._client.settings.multipart_bytes:
                with self._may_be_kept(key, what, replace=replace):
                    return self._large(key, what, descriptor, size, replace=replace, on_sent=on_sent)
            body = os.pread(descriptor, size, 0) if size <= _SMALL_BYTES else FileSection(descriptor, 0, size)
            with self._may_be_kept(key, what, replace=replace):
                return self._small(key, what, body, replace=replace, on_sent=on_sent)
        finally:
            os.close(descriptor)

    def write(self, key: str, what: str, data: bytes, *, replace: bool) -> bool:
        """False if an object exists and must not be replaced."""
        with self._may_be_kept(key, what, replace=replace), self._client.operation(len(data)) as operation:
            return self._put(operation, key, what, data, replace=replace, on_sent=ignore_progress)

    @contextlib.contextmanager
    def _may_be_kept(self, key: str, what: str, *, replace: bool) -> Iterator[None]:
        """A policy may allow writing but not replacing. Then the denial concerns only that object, not the server."""
        try:
            yield
        except S3Error as error:
            if not replace or error.status != _FORBIDDEN:
                raise
            with self._client.operation() as operation:
                if self._client.size_of(operation, key, what) is None:
                    raise
            raise not_replaceable(f"replacing {what} at {self._client.settings.address}", error) from None

    def _small(self, key: str, what: str, body: bytes | FileSection, *, replace: bool, on_sent: OnSent) -> bool:
        with self._client.operation(len(body) if isinstance(body, bytes) else 0) as operation:
            if self._put(operation, key, what, body, replace=replace, on_sent=on_sent):
                return True
            if self._client.size_of(operation, key, what) == len(body):
                return False
            return self._put(operation, key, what, body, replace=True, on_sent=on_sent)

    def _large(self, key: str, what: str, descriptor: int, size: int, *, replace: bool, on_sent: OnSent) -> bool:
        """Check first whether the object exists, and again after 404 and 412. After a conflict (409), all parts have to
        be sent again.
        """
        for attempt in range(1, ATTEMPTS + 1):
            conditional = not replace
            if not replace:
                with self._client.operation() as operation:
                    there = self._client.size_of(operation, key, what)
                if there == size:
                    return False
                conditional = there is None
            try:
                self._features_in_parts.upload(
                    lambda options: self._in_parts(key, what, descriptor, size, options, on_sent),
                    conditional=conditional,
                )
            except S3Error as error:
                if error.status not in (404, 409, 412) or error.kind is ErrorKind.DENIED or attempt == ATTEMPTS:
                    raise
            else:
                return True
        raise AssertionError("the last attempt returns or raises")

    def _in_parts(
        self, key: str, what: str, descriptor: int, size: int, options: UploadOptions, on_sent: OnSent
    ) -> None:
        with self._client.operation() as operation:
            self._multipart.upload(operation, key, what, descriptor, size, options, on_sent)

    def _put(
        self, operation: Operation, key: str, what: str, body: bytes | FileSection, *, replace: bool, on_sent: OnSent
    ) -> bool:
        def attempt(options: UploadOptions) -> bool:
            if not replace and not options.is_conditional and self._client.size_of(operation, key, what) is not None:
                return False
            return self._once(operation, key, what, body, options, on_sent)

        return self._features.upload(attempt, conditional=not replace)

    def _once(
        self,
        operation: Operation,
        key: str,
        what: str,
        body: bytes | FileSection,
        options: UploadOptions,
        on_sent: OnSent,
    ) -> bool:
        """One PUT, retried after a conflict with another writer (409) while the operation lasts."""
        parameters: dict[str, Any] = {"Key": key, "Body": body}
        if options.is_conditional:
            parameters["IfNoneMatch"] = "*"
        if options.has_checksum:
            parameters["ChecksumCRC32"] = body.crc32() if isinstance(body, FileSection) else crc32(body)
        for number in range(1, ATTEMPTS + 1):
            try:
                self._client.send(operation, "put_object", what, parameters, on_sent=on_sent)
            except S3Error as error:
                if error.status == 412 and options.is_conditional:
                    return False
                if error.status != 409 or number == ATTEMPTS or not operation.sleep(_CONFLICT_SECONDS * number):
                    raise
            else:
                return True
        raise AssertionError("the last attempt returns or raises")


def _unreadable(path: Path, reason: str) -> S3Error:
    return S3Error(f"{path.name} cannot be uploaded: it {reason}", code="Unreadable", kind=ErrorKind.TRANSIENT)
