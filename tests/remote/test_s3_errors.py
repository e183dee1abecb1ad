"""What boto raises, as a TransportError: every class of it, and never with a secret in the message."""

from __future__ import annotations

import email.utils
import inspect
import socket
import time
from typing import Any

import botocore.exceptions
import botocore.parsers
import pytest

from mlcbuild.cache.remote.s3.errors import S3Error, as_s3_error
from mlcbuild.cache.remote.transport import ErrorKind, TransportError

SECRET = "wJalrXUtnFEMI/K7MDENG"
DOING = "reading blob ab… at s3://bucket"
CLASSES = [
    each
    for _, each in inspect.getmembers(botocore.exceptions, inspect.isclass)
    if issubclass(each, Exception) and each.__module__ == "botocore.exceptions"
]


def answer(
    status: int, code: str, headers: dict[str, str] | None = None, message: str = SECRET
) -> botocore.exceptions.ClientError:
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}}
    error = {"Code": code, "Message": message, "StringToSign": SECRET, "AWSAccessKeyId": SECRET}
    return botocore.exceptions.ClientError({"Error": error, "ResponseMetadata": metadata}, "GetObject")


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_exception_of_botocore_becomes_an_error_without_its_text(kind: type[Exception]) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, f"https://host/?X-Amz-Signature={SECRET}")
    told = as_s3_error(error, DOING)
    assert isinstance(told, TransportError)
    assert told.message.startswith(DOING)
    assert SECRET not in str(told)


@pytest.mark.parametrize(
    ("name", "settings", "kind"),
    [
        ("NoCredentialsError", {}, ErrorKind.DENIED),
        ("PartialCredentialsError", {"provider": "env", "cred_var": SECRET}, ErrorKind.DENIED),
        ("CredentialRetrievalError", {"provider": "process", "error_msg": SECRET}, ErrorKind.DENIED),
        ("SSOTokenLoadError", {"error_msg": SECRET}, ErrorKind.DENIED),
        ("UnauthorizedSSOTokenError", {}, ErrorKind.DENIED),
        ("ProfileNotFound", {"profile": "p"}, ErrorKind.DENIED),
        ("ReadTimeoutError", {"endpoint_url": SECRET}, ErrorKind.TRANSIENT),
        ("ConnectTimeoutError", {"endpoint_url": SECRET}, ErrorKind.TRANSIENT),
        ("ConnectionClosedError", {"endpoint_url": SECRET}, ErrorKind.TRANSIENT),
        ("ResponseStreamingError", {"error": SECRET}, ErrorKind.TRANSIENT),
        ("IncompleteReadError", {"actual_bytes": 1, "expected_bytes": 2}, ErrorKind.TRANSIENT),
        ("HTTPClientError", {"error": SECRET}, ErrorKind.TRANSIENT),
        ("EndpointConnectionError", {"endpoint_url": SECRET, "error": OSError("refused")}, ErrorKind.TRANSIENT),
        (
            "EndpointConnectionError",
            {"endpoint_url": SECRET, "error": socket.gaierror(socket.EAI_NONAME, "unknown")},
            ErrorKind.DENIED,
        ),
        (
            "EndpointConnectionError",
            {"endpoint_url": SECRET, "error": socket.gaierror(socket.EAI_AGAIN, "for now")},
            ErrorKind.TRANSIENT,
        ),
        ("SSLError", {"endpoint_url": SECRET, "error": "CERTIFICATE_VERIFY_FAILED"}, ErrorKind.DENIED),
        ("SSLError", {"endpoint_url": SECRET, "error": "EOF"}, ErrorKind.TRANSIENT),
        ("ProxyConnectionError", {"proxy_url": SECRET}, ErrorKind.DENIED),
        ("ParamValidationError", {"report": SECRET}, ErrorKind.UNUSABLE),
    ],
)
def test_failures_without_an_answer_are_told_by_what_helps(
    name: str, settings: dict[str, Any], kind: ErrorKind
) -> None:
    told = as_s3_error(getattr(botocore.exceptions, name)(**settings), DOING)
    assert told.kind is kind
    assert SECRET not in str(told)


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        (f"http://10.0.0.1:8333/bucket/key?X-Amz-Signature={SECRET}", "the server 10.0.0.1:8333 cannot"),
        (f"http://user:{SECRET}@10.0.0.1:8333", "the server cannot"),
        ("http://[", "the server cannot"),
        (None, "the server cannot"),
    ],
)
def test_a_server_that_is_not_there_is_named_by_its_host_alone(endpoint: str | None, told: str) -> None:
    error = botocore.exceptions.EndpointConnectionError(endpoint_url=endpoint, error=OSError("refused"))
    assert as_s3_error(error, DOING).message == f"{DOING} failed: {told} be reached"


def test_an_answer_that_cannot_be_parsed_is_unusable() -> None:
    told = as_s3_error(botocore.parsers.ResponseParserError(SECRET), DOING)
    assert told.kind is ErrorKind.UNUSABLE
    assert SECRET not in str(told)


@pytest.mark.parametrize("code", [SECRET + " ", "x" * 100, "", "a b", "\x1b[31m"])
def test_a_code_that_is_no_word_is_left_out(code: str) -> None:
    told = as_s3_error(answer(500, code), DOING)
    assert told.message == f"{DOING} was answered unreadable (status 500)"


@pytest.mark.parametrize("code", ["AccessDenied", "SlowDown", "SignatureDoesNotMatch", "InvalidAccessKeyId", "Odd"])
def test_the_code_and_status_are_told_and_the_servers_text_is_not(code: str) -> None:
    told = as_s3_error(answer(403, code), DOING)
    assert told.message == f"{DOING} was answered {code} (status 403)"
    assert SECRET not in str(told)


def test_both_forms_of_retry_after_are_understood() -> None:
    def wait(text: str) -> float:
        return as_s3_error(answer(503, "SlowDown", {"retry-after": text}), DOING).retry_after

    assert wait("12") == 12
    assert 50 < wait(email.utils.formatdate(time.time() + 60, usegmt=True)) <= 60
    assert wait(email.utils.formatdate(time.time() - 60, usegmt=True)) == 0
    assert [wait(text) for text in ("", "soon", "-5", "١٢")] == [0, 0, 0, 0]
    assert wait("999999999") == 3600


def test_what_is_classified_stays_as_it_is_and_our_own_deadline_says_so() -> None:
    error = S3Error("told already", code="Deadline", kind=ErrorKind.TRANSIENT)
    assert as_s3_error(error, DOING) is error
    assert as_s3_error(OSError("bad file descriptor"), DOING, cut=True).message == f"{DOING} did not end in time"


def test_a_question_that_is_answered_without_words_is_told_with_what_it_may_mean() -> None:
    # A HEAD has no body that could say ExpiredToken.
    told = as_s3_error(answer(400, "400"), DOING)
    assert told.kind is ErrorKind.UNUSABLE
    assert "expired" in str(told)
    assert "region" in str(told)
