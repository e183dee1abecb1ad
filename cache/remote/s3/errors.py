"""Errors from exceptions of boto: messages, kinds and advice.

Messages contain only the address, the operation and the error code. Texts of servers and of botocore are left out,
because they quote addresses, headers and signed strings.
"""

from __future__ import annotations

import contextlib
import email.utils
import re
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

from mlcbuild.cache.remote.transport import ErrorKind, TransportError

_CODE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LONGEST_WAIT = 3600.0

EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
# Codes say more than statuses: S3 answers 400 for many transient errors.
_TRANSIENT = frozenset(
    {
        *("SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "RequestThrottled"),
        *("RequestLimitExceeded", "TooManyRequests", "BandwidthLimitExceeded", "ServiceUnavailable", "Busy"),
        *("RequestTimeout", "RequestTimeoutException", "InternalError", "IncompleteBody", "BadDigest", "InvalidDigest"),
        *("XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "OperationAborted"),
        *("ConditionalRequestConflict", "NoSuchUpload", "InvalidPart", "PreconditionFailed"),
    }
)
_ADVICE: dict[str, tuple[str, ...]] = {
    "NoSuchBucket": ("create the bucket, or correct its name, endpoint or region",),
    "AccessDenied": (
        "allow these credentials to read and write below that prefix;",
        "without s3:ListBucket, a server answers 403 for absent objects",
    ),
    "SignatureDoesNotMatch": ("the secret key does not belong to this access key",),
    "InvalidAccessKeyId": ("the server does not know this access key; is the endpoint the right one?",),
    "RequestTimeTooSkewed": ("set this machine's clock",),
    "AuthorizationHeaderMalformed": ("set the region of the bucket",),
    "PermanentRedirect": ("set the region or endpoint of the bucket",),
    "InvalidTokenId": ("log in again, or renew the session token",),
    "InvalidToken": ("log in again, or renew the session token",),
    **dict.fromkeys(EXPIRED, ("the credentials have expired: log in again",)),
}
# The answer to a HEAD has no body, and so no code.
_WITHOUT_WORDS = (
    "the server gave no reason: log in again if the credentials may have expired, and check the bucket's region",
)
_CREDENTIALS = "set credentials as for the AWS tools: environment variables, ~/.aws, SSO or a role"
# By name, because the installed version of botocore may lack some of these classes.
_REFUSED_EXCEPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "NoCredentialsError": ("no credentials were found", (_CREDENTIALS,)),
    "PartialCredentialsError": ("the credentials are not complete", (_CREDENTIALS,)),
    "CredentialRetrievalError": ("credentials could not be retrieved", (_CREDENTIALS,)),
    "NoAuthTokenError": ("no credentials were found", (_CREDENTIALS,)),
    "TokenRetrievalError": ("the login has expired", ("log in again",)),
    "UnauthorizedSSOTokenError": ("the login has expired", ("log in again",)),
    "SSOTokenLoadError": ("there is no login", ("log in with the AWS tools",)),
    "LoginRefreshRequired": ("the login has expired", ("log in again",)),
    "ProfileNotFound": ("the profile does not exist", ("correct the profile's name, or AWS_PROFILE",)),
    "ConfigParseError": ("the AWS configuration file cannot be read", ("correct ~/.aws/config",)),
    "NoRegionError": ("no region is set", ("set a region",)),
    "ProxyConnectionError": ("the proxy cannot be reached", ("correct HTTP_PROXY, HTTPS_PROXY or NO_PROXY",)),
}
_CUT_OFF = frozenset({"ConnectionClosedError", "ResponseStreamingError", "IncompleteReadError", "ProtocolError"})
_SILENT = frozenset({"ReadTimeoutError", "ConnectTimeoutError", "TimeoutError"})


class S3Error(TransportError):
    """A TransportError with status, code and date of S3's answer. Without an answer: 0, a name of our own, and ""."""

    def __init__(self, message: str, *, status: int = 0, code: str, date: str = "", **others: Any) -> None:
        super().__init__(message, **others)
        self.status = status
        self.date = date
        self.code = code


def as_s3_error(error: Exception, doing: str, *, cut: bool = False) -> S3Error:
    """The error for an exception of boto. `cut`: a deadline of ours ended the exchange."""
    if isinstance(error, S3Error):
        return error
    if cut:
        return S3Error(f"{doing} did not end in time", code="Deadline", kind=ErrorKind.TRANSIENT, is_timeout=True)
    response = getattr(error, "response", None)
    if isinstance(response, dict) and "Error" in response:
        return _of_answer(response, doing)
    return _of_exception(error, doing)


def cut_short(doing: str, got: int, expected: int) -> S3Error:
    return S3Error(
        f"{doing} received {got} bytes instead of {expected}", code="IncompleteBody", kind=ErrorKind.TRANSIENT
    )


def wrong_size(doing: str, got: int, expected: int) -> S3Error:
    """The error for an object of another size, or an answer without its size (-1)."""
    kind = ErrorKind.ITEM if got >= 0 else ErrorKind.TRANSIENT
    return S3Error(f"{doing} found {got} bytes instead of {expected}", code="WrongSize", kind=kind)


def not_replaceable(doing: str, error: S3Error) -> S3Error:
    """The error for an existing object that the server does not allow to replace. Others are not affected."""
    return S3Error(
        f"{doing} was answered {error.code} (status {error.status}): the existing object may not be replaced",
        status=error.status,
        code=error.code,
        kind=ErrorKind.ITEM,
        advice=("delete the object, or allow these credentials to replace objects",),
    )


def _of_answer(response: Mapping[str, Any], doing: str) -> S3Error:
    metadata = response.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    code = str(response["Error"].get("Code", ""))
    if not _CODE.fullmatch(code):
        code = "unreadable"
    # The answer to a HEAD has no body, and so no code.
    code = {"403": "AccessDenied", "301": "PermanentRedirect"}.get(code, code)
    told = f"status {status}" if code == str(status) else f"{code} (status {status})"
    headers = metadata.get("HTTPHeaders", {})
    return S3Error(
        f"{doing} was answered {told}",
        status=status,
        code=code,
        date=str(headers.get("date", "")),
        kind=_kind_of(status, code),
        retry_after=_retry_after(headers),
        advice=_WITHOUT_WORDS if code == "400" else _ADVICE.get(code, ()),
    )


def _kind_of(status: int, code: str) -> ErrorKind:
    if code in _TRANSIENT or status in (408, 409, 412, 425, 429):
        return ErrorKind.TRANSIENT
    if code in _ADVICE or status in (301, 307, 401, 402, 403, 404, 407, 507):
        return ErrorKind.DENIED
    return ErrorKind.TRANSIENT if status >= 500 and status != 501 else ErrorKind.UNUSABLE


def _of_exception(error: Exception, doing: str) -> S3Error:
    names = {each.__name__ for each in type(error).__mro__}
    name = type(error).__name__

    def made(what: str, kind: ErrorKind, *advice: str) -> S3Error:
        return S3Error(f"{doing} failed: {what}", code=name, kind=kind, advice=advice)

    for known in names & _REFUSED_EXCEPTIONS.keys():
        what, advice = _REFUSED_EXCEPTIONS[known]
        return made(what, ErrorKind.DENIED, *advice)
    if isinstance(error, ModuleNotFoundError):
        return made("boto3 is not installed", ErrorKind.DENIED, "pip install 'mlcbuild[s3]'")
    # botocore has CERTIFICATE_VERIFY_FAILED only in its text.
    if "SSLError" in names and "CERTIFICATE_VERIFY_FAILED" in str(error):
        remedy = "set AWS_CA_BUNDLE to the certificate of your company's authority"
        return made("the server's certificate is not trusted", ErrorKind.DENIED, remedy)
    if "EndpointConnectionError" in names:
        if _is_unknown_host(error):
            return made("no server has that name", ErrorKind.DENIED, "correct the endpoint or region")
        return made(f"the server{_tried(error)} cannot be reached", ErrorKind.TRANSIENT)
    if names & _SILENT:
        return S3Error(f"{doing} failed: no answer in time", code=name, kind=ErrorKind.TRANSIENT, is_timeout=True)
    if names & _CUT_OFF:
        return made("the connection was cut off", ErrorKind.TRANSIENT)
    if names & {"HTTPClientError", "HTTPError", "HTTPException", "OSError"}:
        return made("the connection failed", ErrorKind.TRANSIENT)
    if "ResponseParserError" in names:
        return made("the answer cannot be understood", ErrorKind.UNUSABLE, "is this the address of an S3 server?")
    return made(f"boto raised {name}", ErrorKind.UNUSABLE)


def _tried(error: Exception) -> str:
    """` host:port` of the server, if botocore tells it and it contains no password."""
    endpoint = str(getattr(error, "kwargs", {}).get("endpoint_url", ""))
    with contextlib.suppress(ValueError):
        if "@" not in endpoint and (place := urllib.parse.urlsplit(endpoint).netloc):
            return f" {place}"
    return ""


def _is_unknown_host(error: BaseException) -> bool:
    """Whether the server's name does not exist. False if no name server could be reached, as on a laptop on a train."""
    import socket

    seen: list[BaseException] = []
    cause: Any = error
    while isinstance(cause, BaseException) and cause not in seen:
        seen.append(cause)
        if isinstance(cause, socket.gaierror):
            return cause.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
        cause = getattr(cause, "kwargs", {}).get("error") or cause.__cause__ or cause.__context__
    return False


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds, from either form of the header (RFC 9110, section 10.2.3); 0 if there is none."""
    text = headers.get("retry-after", "").strip()
    seconds = 0.0
    if text.isascii() and text.isdigit():
        seconds = float(text)
    elif text:
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
    return min(max(0.0, seconds), _LONGEST_WAIT)
