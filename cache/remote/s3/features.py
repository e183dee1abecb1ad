"""What an endpoint refuses, found out by the first upload: S3-compatible servers differ in two things.

Many refuse the checksums of newer clients (boto/boto3#4392), some refuse conditional writes. Whatever is refused is
left out from then on. A server that takes a condition and ignores it cannot be told from one that heeds it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from mlcbuild.cache.remote.s3.errors import S3Error
from mlcbuild.cache.remote.s3.settings import Checksums

T = TypeVar("T")
# Of status 400, but no refusal of a header.
_OTHER_CODES = frozenset(
    {
        *("RequestTimeout", "BadDigest", "InvalidDigest", "IncompleteBody", "EntityTooLarge", "EntityTooSmall"),
        *("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AuthorizationHeaderMalformed", "InvalidBucketName"),
        *("KeyTooLongError", "XAmzContentSHA256Mismatch", "InvalidPart", "InvalidPartOrder", "RequestTimeTooSkewed"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadOptions:
    """How an upload is made: with `If-None-Match: *`, and with a CRC32."""

    is_conditional: bool
    has_checksum: bool


class EndpointFeatures:
    """Safe for threads: the worst that a race does is a second refusal."""

    def __init__(self, checksums: Checksums) -> None:
        self._checksum = {Checksums.AUTO: None, Checksums.ALWAYS: True, Checksums.NEVER: False}[checksums]
        self._conditional: bool | None = None

    def upload(self, attempt: Callable[[UploadOptions], T], *, conditional: bool) -> T:
        """Attempt in the best options that the endpoint is not known to refuse, then in lesser ones."""
        choices = list(self._choices(conditional))
        for options in choices:
            try:
                answer = attempt(options)
            except S3Error as error:
                is_refusal = error.status == 501 or (error.status == 400 and error.code not in _OTHER_CODES)
                if not is_refusal or options is choices[-1]:
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
