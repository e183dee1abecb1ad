"""Which features an S3-compatible endpoint supports. The first upload finds that out.

Many endpoints reject the checksums of newer clients (boto/boto3#4392), and some reject conditional writes. A rejected
feature is not used again. A server that accepts a condition and ignores it is not recognized here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from mlcbuild.cache.remote.s3.errors import S3Error
from mlcbuild.cache.remote.s3.settings import Checksums

T = TypeVar("T")
# Codes with status 400 that do not mean a rejected header.
_OTHER_CODES = frozenset(
    {
        *("RequestTimeout", "BadDigest", "InvalidDigest", "IncompleteBody", "EntityTooLarge", "EntityTooSmall"),
        *("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AuthorizationHeaderMalformed", "InvalidBucketName"),
        *("KeyTooLongError", "XAmzContentSHA256Mismatch", "InvalidPart", "InvalidPartOrder", "RequestTimeTooSkewed"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadOptions:
    """Whether an upload is conditional (`If-None-Match: *`), and has a CRC32."""

    is_conditional: bool
    has_checksum: bool


class EndpointFeatures:
    """The known features of one endpoint. Thread-safe: a race costs at most a second rejection."""

    def __init__(self, checksums: Checksums) -> None:
        self._checksum = {Checksums.AUTO: None, Checksums.ALWAYS: True, Checksums.NEVER: False}[checksums]
        self._conditional: bool | None = None

    def upload(self, attempt: Callable[[UploadOptions], T], *, conditional: bool) -> T:
        """Attempt an upload with all features that the endpoint is not known to reject, then with fewer."""
        choices = list(self._choices(conditional))
        for options in choices:
            try:
                answer = attempt(options)
            except S3Error as error:
                is_rejection = error.status == 501 or (error.status == 400 and error.code not in _OTHER_CODES)
                if not is_rejection or options is choices[-1]:
                    raise
            else:
                break
        if self._checksum is None:
            self._checksum = options.has_checksum
        if conditional and self._conditional is None:
            self._conditional = options.is_conditional
        return answer

    def _choices(self, conditional: bool) -> Iterator[UploadOptions]:
        conditions = (False,) if not conditional or self._conditional is False else (True, False)
        if conditional and self._conditional:
            conditions = (True,)
        checksums = (True, False) if self._checksum is None else (self._checksum,)
        for is_conditional in conditions:
            for has_checksum in checksums:
                yield UploadOptions(is_conditional=is_conditional, has_checksum=has_checksum)
