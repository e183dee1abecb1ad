"""Uploads of large blobs in parallel parts. A failed upload leaves nothing behind."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from mlcbuild.cache.remote.s3.bounded_pool import BoundedPool, OrderedMap
from mlcbuild.cache.remote.s3.client import S3Client
from mlcbuild.cache.remote.s3.errors import S3Error
from mlcbuild.cache.remote.s3.features import UploadOptions
from mlcbuild.cache.remote.s3.operation import Operation
from mlcbuild.cache.remote.s3.retry import retry
from mlcbuild.cache.remote.s3.section import FileSection
from mlcbuild.cache.remote.throughput_deadline import ThroughputDeadline
from mlcbuild.cache.remote.transport import OnSent

_MOST_PARTS = 9000  # S3 allows 10,000.
_ABORT_SECONDS = 30.0
# "Processing of a Complete Multipart Upload request could take several minutes" (S3's API reference). Meanwhile the
# server sends blanks, so the time limit depends on the size, not on received bytes.
_JOINED_BYTES_A_SECOND = 8 << 20


def part_size(size: int, least: int) -> int:
    return max(least, math.ceil(size / _MOST_PARTS))


class Multipart:
    """Multipart uploads of one transport."""

    def __init__(self, client: S3Client, pool: BoundedPool) -> None:
        self._client = client
        self._pool = pool

    def upload(
        self,
        operation: Operation,
        key: str,
        what: str,
        descriptor: int,
        size: int,
        options: UploadOptions,
        on_sent: OnSent,
    ) -> None:
        """Raises S3Error: 412 if the upload is conditional and an object exists at its end, 404 if the server does not
        know the upload any more. In both cases the object may be this one, if an answer was lost.
        """
        algorithm = {"ChecksumAlgorithm": "CRC32"} if options.has_checksum else {}
        begun = self._client.send(operation, "create_multipart_upload", what, {"Key": key, **algorithm})
        upload: dict[str, Any] = {"Key": key, "UploadId": begun["UploadId"]}
        try:
            parts = self._parts(operation, what, descriptor, size, options, upload, on_sent)
            condition = {"IfNoneMatch": "*"} if options.is_conditional else {}
            complete = {**upload, **condition, "MultipartUpload": {"Parts": parts}}
            seconds = self._client.settings.deadlines.total + size / _JOINED_BYTES_A_SECOND
            with operation.deadline.paused():
                retry(
                    operation,
                    lambda: self._client.send(
                        operation,
                        "complete_multipart_upload",
                        what,
                        complete,
                        deadline=ThroughputDeadline(slack=seconds),
                    ),
                )
        except BaseException:
            operation.cancel()
            self._abort(what, upload)
            raise

    def _parts(
        self,
        operation: Operation,
        what: str,
        descriptor: int,
        size: int,
        options: UploadOptions,
        upload: dict[str, Any],
        on_sent: OnSent,
    ) -> list[dict[str, Any]]:
        step = part_size(size, self._client.settings.part_bytes)

        def send(start: int) -> dict[str, Any]:
            section = FileSection(descriptor, start, min(step, size - start))
            checksum = {"ChecksumCRC32": section.crc32()} if options.has_checksum else {}
            number = start // step + 1
            parameters = {**upload, **checksum, "PartNumber": number, "Body": section}
            answer = retry(
                operation,
                lambda: self._client.send(operation, "upload_part", what, parameters, on_sent=on_sent),
            )
            return {"PartNumber": number, "ETag": answer["ETag"], **checksum}

        with OrderedMap(self._pool, operation, send, range(0, size, step)) as parts:
            return list(parts)

    def _abort(self, what: str, upload: dict[str, Any]) -> None:
        """Abort an upload, because incomplete parts cost money. If this fails, the bucket's rule
        AbortIncompleteMultipartUpload has to remove them.
        """
        operation = Operation(ThroughputDeadline(slack=_ABORT_SECONDS))
        with contextlib.suppress(S3Error):
            retry(operation, lambda: self._client.send(operation, "abort_multipart_upload", what, upload))
