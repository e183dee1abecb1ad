"""Errors from HTTP statuses and exceptions: messages and kinds."""

from __future__ import annotations

import email.utils
import http
import http.client
import socket
import ssl
import time

from mlcbuild.cache.remote.transport import ErrorKind, TransportError

_LONGEST_PAUSE_SECONDS = 3600.0
_TRANSIENT = frozenset({408, 425, 429})
_REFUSED = frozenset({401, 403, 407, 451})
_WILL_NEVER_DO = frozenset({501, 505})
_NOBODY = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


def of_status(status: int, retry_after: str | None, doing: str, *, advice: tuple[str, ...] = ()) -> TransportError:
    """The error for a status other than success and absence. `doing` describes the request."""
    try:
        phrase = f" {http.HTTPStatus(status).phrase}"
    except ValueError:
        phrase = ""
    message = f"{doing}: the server answered {status}{phrase}"
    if status in _REFUSED:
        advice = advice or ("check the user, password or token for this cache, and their permissions",)
        return TransportError(message, kind=ErrorKind.DENIED, advice=advice)
    if status in _TRANSIENT or (status >= 500 and status not in _WILL_NEVER_DO):
        return TransportError(message, kind=ErrorKind.TRANSIENT, retry_after=seconds_to_wait(retry_after))
    return TransportError(message, kind=ErrorKind.UNUSABLE, advice=advice)


def seconds_to_wait(value: str | None) -> float:
    """Seconds from a `Retry-After` (seconds or date, RFC 9110, 10.2.3), at most an hour. 0 if
    missing, past or invalid.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _LONGEST_PAUSE_SECONDS)
    try:
        until = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(until - time.time(), 0.0), _LONGEST_PAUSE_SECONDS)


def of_exception(error: Exception, doing: str) -> TransportError:
    """The error for an exception of sockets, TLS or `http.client`."""
    if isinstance(error, TimeoutError):
        return TransportError(f"{doing}: no answer in time", kind=ErrorKind.TRANSIENT, is_timeout=True)
    if isinstance(error, ssl.SSLCertVerificationError):
        return TransportError(
            f"{doing}: the server's certificate is not trusted: {error.verify_message}",
            kind=ErrorKind.DENIED,
            advice=("set the certificates to trust in the cache's settings or in SSL_CERT_FILE",),
        )
    if isinstance(error, socket.gaierror):
        kind = ErrorKind.DENIED if error.errno in _NOBODY else ErrorKind.TRANSIENT
        return TransportError(f"{doing}: the host was not found: {error.strerror}", kind=kind)
    if isinstance(error, http.client.IncompleteRead):
        return TransportError(f"{doing}: the answer was cut short", kind=ErrorKind.TRANSIENT)
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        return TransportError(f"{doing}: the connection failed: {reason}", kind=ErrorKind.TRANSIENT)
    return TransportError(
        f"{doing}: the answer is not HTTP ({type(error).__name__})",
        kind=ErrorKind.UNUSABLE,
        advice=("check the port and whether it is http or https",),
    )
