"""A boto client for all threads. It is made at the first request, and again when its credentials have expired."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.remote.s3.errors import EXPIRED, S3Error, as_s3_error, cut_short
from mlcbuild.cache.remote.s3.operation import Exchange, Operation, watch
from mlcbuild.cache.remote.s3.section import FileSection
from mlcbuild.cache.remote.s3.settings import Addressing, S3Settings
from mlcbuild.cache.remote.throughput_deadline import ThroughputDeadline
from mlcbuild.cache.remote.transport import ErrorKind, OnSent, ignore_progress

# An operation is a few requests in sequence, or many in parallel. Each may use up its deadline once.
_DEADLINES_AN_OPERATION = 2
# Threads of callers, beside those of the transport. More connections are closed after use.
_CALLERS = 32
_QUICK_SECONDS = 0.05
_QUICK_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ResponseBody:
    """The body of an object or of a range. `total` is the size of the whole object; -1 if the server does not tell."""

    doing: str
    length: int
    total: int
    is_range: bool
    stream: Any
    exchange: Exchange
    piece_bytes: int

    def pieces(self, expected: int) -> Iterator[bytes]:
        """The bytes in pieces. Raises S3Error, also if there are not `expected` bytes.

        Time that the caller spends between pieces does not count. Pieces have `piece_bytes`, so that progress on a slow
        line is seen, and are larger while the line is fast.
        """
        got, size = 0, self.piece_bytes
        while True:
            began = time.monotonic()
            try:
                piece: bytes = self.stream.read(size)
            except Exception as error:
                raise as_s3_error(error, self.doing, cut=self.exchange.is_cut) from error
            is_quick = time.monotonic() - began < _QUICK_SECONDS
            size = min(2 * size, max(_QUICK_PIECE_BYTES, self.piece_bytes)) if is_quick else self.piece_bytes
            self.exchange.came(len(piece))
            got += len(piece)
            if got > expected or (not piece and got < expected):
                if self.exchange.is_cut:
                    raise as_s3_error(TimeoutError(), self.doing, cut=True)
                raise cut_short(self.doing, got, expected)
            if not piece:
                return
            with self.exchange.deadline.paused():
                yield piece


class S3Client:
    """Makes requests by name. Each has a deadline, and fails with S3Error. boto's retries are off."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._client: Any = None

    def operation(self, unseen: int = 0) -> Operation:
        """A new operation. `unseen` bytes are transferred without visible progress."""
        deadlines = self.settings.deadlines
        slack = _DEADLINES_AN_OPERATION * deadlines.total_for(unseen)
        return Operation(ThroughputDeadline(slack=slack, bytes_per_second=deadlines.bytes_per_second))

    def send(
        self,
        operation: Operation,
        name: str,
        what: str,
        parameters: dict[str, Any],
        *,
        on_sent: OnSent = ignore_progress,
        deadline: ThroughputDeadline | None = None,
    ) -> dict[str, Any]:
        """Make a request whose answer has no body to stream. Return the answer.

        `name` is the client's method, `what` the key's short name for messages. Bytes of a body that is a FileSection
        are counted while they move: each is reported to `on_sent`, again when it is sent again. `deadline` replaces the
        usual one.
        """
        deadlines, body = self.settings.deadlines, parameters.get("Body", b"")
        if deadline is None and isinstance(body, bytes):
            deadline = ThroughputDeadline(slack=deadlines.total_for(len(body)))
        with operation.exchange(deadline or deadlines.transfer()) as exchange:
            if isinstance(body, FileSection):
                body.told = _while_sending(exchange, on_sent)
            return self._send(name, _doing(name, what, self.settings.address), exchange, parameters)

    @contextlib.contextmanager
    def get(self, operation: Operation, key: str, what: str, **parameters: Any) -> Iterator[ResponseBody | None]:
        """The body of an object; None if it is absent. The connection is released at the end of the block."""
        doing = _doing("get_object", what, self.settings.address)
        with operation.exchange(self.settings.deadlines.transfer()) as exchange:
            answer = self._found("get_object", doing, exchange, {"Key": key, **parameters})
            if answer is None:
                yield None
                return
            length = int(answer.get("ContentLength", -1))
            _, _, total = str(answer.get("ContentRange", "")).rpartition("/")
            with contextlib.closing(answer["Body"]) as stream:
                yield ResponseBody(
                    doing=doing,
                    length=length,
                    total=int(total) if total.isdigit() else length,
                    is_range="ContentRange" in answer,
                    stream=stream,
                    exchange=exchange,
                    piece_bytes=self.settings.deadlines.piece_bytes,
                )

    def size_of(self, operation: Operation, key: str, what: str) -> int | None:
        """The size of an object in bytes; None if it is absent."""
        doing = _doing("head_object", what, self.settings.address)
        with operation.exchange(self.settings.deadlines.transfer()) as exchange:
            answer = self._found("head_object", doing, exchange, {"Key": key})
        return None if answer is None else int(answer["ContentLength"])

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _found(self, name: str, doing: str, exchange: Exchange, parameters: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; None for an absent object. A HEAD cannot tell an absent bucket from an absent object."""
        try:
            return self._send(name, doing, exchange, parameters)
        except S3Error as error:
            if error.status == 404 and error.code in ("NoSuchKey", "NotFound", "404", "NoSuchVersion"):
                return None
            raise

    def _send(self, name: str, doing: str, exchange: Exchange, parameters: dict[str, Any]) -> dict[str, Any]:
        client = self._current(doing)
        try:
            return self._once(client, name, doing, exchange, parameters)
        except S3Error as error:
            # The answer to a HEAD has only a status, no body that would explain it.
            if error.code not in EXPIRED and not (name == "head_object" and error.status == 400):
                raise
        return self._once(self._renewed(client, doing), name, doing, exchange, parameters)

    def _once(
        self, client: Any, name: str, doing: str, exchange: Exchange, parameters: dict[str, Any]
    ) -> dict[str, Any]:
        if isinstance(body := parameters.get("Body"), FileSection):
            body.seek(0)
        try:
            answer: dict[str, Any] = getattr(client, name)(Bucket=self.settings.bucket, **parameters)
        except Exception as error:
            raise as_s3_error(error, doing, cut=exchange.is_cut) from error
        return answer

    def _current(self, doing: str) -> Any:
        with self._lock:
            if self._client is None:
                try:
                    self._client = _made(self.settings)
                except Exception as error:
                    raise as_s3_error(error, doing) from error
            return self._client

    def _renewed(self, old: Any, doing: str) -> Any:
        """A new client, which looks for credentials again: the user may have logged in meanwhile.

        The old client is not closed, because other threads may still use it.
        """
        with self._lock:
            if self._client is old:
                self._client = None
        return self._current(doing)


def blob_name(digest: Digest) -> str:
    """The blob's name in messages."""
    return f"blob {digest.hash[:16]}…"


def _while_sending(exchange: Exchange, on_sent: OnSent) -> Callable[[int], None]:
    def told(count: int) -> None:
        if exchange.is_sending:
            exchange.went(count)
            on_sent(count)

    return told


def _doing(name: str, what: str, address: str) -> str:
    verbs = {"head_object": "asking for", "get_object": "reading", "put_object": "writing"}
    return f"{verbs.get(name, 'uploading')} {what} at {address}"


def made_session(settings: S3Settings) -> Any:
    """boto's session, which finds credentials and a region. Raises S3Error if boto3 is not installed."""
    try:
        import boto3
    except ModuleNotFoundError as error:
        raise S3Error(
            f"{settings.address} needs boto3, which is not installed",
            code="ModuleNotFoundError",
            kind=ErrorKind.DENIED,
            advice=("pip install 'mlcbuild[s3]'",),
        ) from error
    try:
        return boto3.session.Session(profile_name=settings.profile or None, region_name=settings.region or None)
    except Exception as error:
        raise as_s3_error(error, f"reading the AWS settings for {settings.address}") from error


def _made(settings: S3Settings) -> Any:
    session = made_session(settings)
    from botocore.config import Config

    styles: dict[str, Any] = {}
    if settings.addressing is not Addressing.AUTO:
        styles["addressing_style"] = settings.addressing.value
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=settings.deadlines.connect,
        read_timeout=settings.deadlines.idle,
        max_pool_connections=settings.connections + _CALLERS,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        tcp_keepalive=True,
        s3=styles,
        user_agent_extra="mlcbuild",
    )
    client = session.client("s3", endpoint_url=settings.endpoint or None, config=config)
    watch(client)
    return client
