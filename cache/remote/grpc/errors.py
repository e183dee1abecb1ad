"""Errors from gRPC statuses: messages and kinds."""

from __future__ import annotations

import contextlib
from typing import Any

from mlcbuild.cache.remote.grpc.messages import Status
from mlcbuild.cache.remote.transport import ErrorKind, TransportError

# The names of google.rpc.Code by number, for statuses inside messages.
CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
_REFUSED = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED"})
_UNUSABLE = frozenset({"INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED"})
_LONGEST_PAUSE_SECONDS = 3600.0
_MOST_SHOWN = 300  # characters of a server's text


class CallError(TransportError):
    """A call that ended with an error status. `code` is its name, such as `NOT_FOUND`."""

    def __init__(
        self, message: str, *, code: str, kind: ErrorKind, retry_after: float = 0.0, advice: tuple[str, ...] = ()
    ) -> None:
        is_timeout = code == "DEADLINE_EXCEEDED"
        super().__init__(message, kind=kind, retry_after=retry_after, is_timeout=is_timeout, advice=advice)
        self.code = code


def of_call(error: Any, doing: str, secrets: tuple[str, ...]) -> CallError:
    """The error for a `grpc.RpcError` that is also a call."""
    retry_after = 0.0
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            with contextlib.suppress(ValueError):
                retry_after = Status.decode(value).retry_after
    return of_status(error.code().name, error.details() or "", retry_after, doing, secrets)


def of_status(code: str, details: str, retry_after: float, doing: str, secrets: tuple[str, ...] = ()) -> CallError:
    """The error for a status. `doing` describes the request. `secrets` are removed from the server's text."""
    for secret in secrets:
        details = details.replace(secret, "…")
    details = " ".join(details.split())[:_MOST_SHOWN]
    message = f"{doing}: {code}" + (f": {details}" if details else "")
    kind = ErrorKind.TRANSIENT
    advice: tuple[str, ...] = ()
    if code in _REFUSED:
        kind, advice = ErrorKind.DENIED, ("check the token for this cache, and its permissions",)
    elif "CERTIFICATE_VERIFY_FAILED" in details:
        kind = ErrorKind.DENIED
        advice = ("set the certificates to trust in the cache's settings or in SSL_CERT_FILE",)
    elif "WRONG_VERSION_NUMBER" in details or "Failed parsing HTTP/2" in details:
        kind = ErrorKind.DENIED
        advice = ("check the port, and whether it is grpc or grpcs",)
    elif "larger than max" in details:  # gRPC uses RESOURCE_EXHAUSTED for its own limits too
        kind = ErrorKind.ITEM
    elif code in _UNUSABLE:
        kind = ErrorKind.UNUSABLE
    elif code == "DEADLINE_EXCEEDED":
        message = f"{doing}: no answer in time"
    return CallError(
        message,
        code=code,
        kind=kind,
        retry_after=min(retry_after, _LONGEST_PAUSE_SECONDS) if kind is ErrorKind.TRANSIENT else 0.0,
        advice=advice,
    )
