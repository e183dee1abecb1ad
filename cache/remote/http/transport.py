"""A transport to a server with Bazel's HTTP protocol: GET, HEAD and PUT of `<base>/cas/<hash>` and `<base>/ac/<hash>`.

Addresses contain only the hash, of whatever digest function. A result is an encoded ActionResult. The protocol does not
say which digest function a server expects. (See "HTTP caching protocol" in Bazel's page on remote caching.)
"""

from __future__ import annotations

import contextlib
import http
import http.client
import io
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.http import bodies, errors
from mlcbuild.cache.remote.http.address import HttpAddress, Origin, authorization_from_netrc
from mlcbuild.cache.remote.http.bodies import RequestBody
from mlcbuild.cache.remote.http.connections import Pool, tls_context
from mlcbuild.cache.remote.settings import ServerSettings
from mlcbuild.cache.remote.throughput_deadline import ThroughputDeadline
from mlcbuild.cache.remote.transport import ErrorKind, OnSent, Sink, TransportError, ignore_progress

# Larger blobs are checked with HEAD before they are sent. The check costs a round trip, about as much as sending a
# small blob. For a large one it may save all bytes, because servers read a second PUT of the same blob in full.
ASK_FIRST_BYTES = 1 << 20
MOST_RESULT_BYTES = 64 << 20
_MOST_REDIRECTS = 5
_ANSWER_BYTES = 500  # of one HEAD, approximately, for the time limit of many

_ABSENT = (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.GONE)
_STORED = (http.HTTPStatus.OK, http.HTTPStatus.CREATED, http.HTTPStatus.ACCEPTED, http.HTTPStatus.NO_CONTENT)
_NOT_TWICE = (http.HTTPStatus.FORBIDDEN, http.HTTPStatus.METHOD_NOT_ALLOWED, http.HTTPStatus.CONFLICT)
_REDIRECTS = (301, 302, 303, 307, 308)
_IN_TARGETS = "/%:@!$&'()*+,;=?~-._"


class HttpTransport:
    """A Transport. Raises TransportError for certificates, a proxy or a netrc that cannot be used."""

    def __init__(self, address: HttpAddress, function: DigestFunction, settings: ServerSettings) -> None:
        self._address = address
        self._function = function
        self._settings = settings
        self._headers = _headers(address, settings)
        self._pools: dict[Origin, Pool] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._pool(address.origin)

    @property
    def address(self) -> str:
        return str(self._address)

    @property
    def function(self) -> DigestFunction:
        return self._function

    def missing(self, digests: Sequence[Digest]) -> tuple[Digest, ...]:
        """One HEAD per blob, several in parallel. The protocol has no request for many blobs."""
        asked = [digest for digest in dict.fromkeys(digests) if digest.size_bytes]
        deadlines = self._settings.deadlines
        end = time.monotonic() + deadlines.total_for(len(asked) * _ANSWER_BYTES)
        if len(asked) <= 1:
            return tuple(digest for digest in asked if not self._is_there(digest, self._deadline()))
        failed = threading.Event()

        def ask(digest: Digest) -> bool:
            try:
                left = min(max(end - time.monotonic(), 0.0), deadlines.total)
                return not failed.is_set() and self._is_there(
                    digest, ThroughputDeadline(slack=left, idle=deadlines.idle)
                )
            except BaseException:
                failed.set()
                raise

        with ThreadPoolExecutor(min(self._settings.connections, len(asked)), "remote-cache") as threads:
            there = list(threads.map(ask, asked))
        return tuple(digest for digest, is_there in zip(asked, there, strict=True) if not is_there)

    def download(self, digest: Digest, sink: Sink) -> bool:
        if not digest.size_bytes:
            return True
        path = f"/cas/{digest.hash}"
        doing = self._doing("GET", path)
        with self._get(path, doing, self._deadline()) as response:
            if response is None:
                return False
            announced = bodies.announced(response)
            if announced is not None and announced != digest.size_bytes:
                raise _wrong_length(doing, announced, digest.size_bytes)
            received = 0
            for chunk in bodies.chunks(response, doing):
                received += len(chunk)
                if received > digest.size_bytes:
                    raise _wrong_length(doing, received, digest.size_bytes)
                sink(chunk)
            if received < digest.size_bytes:
                raise _cut_short(doing, received, digest.size_bytes)
        return True

    def upload(self, digest: Digest, path: Path, *, replace: bool = False, on_sent: OnSent = ignore_progress) -> bool:
        """True also for a small blob that already existed, and if the server drops the new bytes: the protocol does not
        tell.
        """
        if not digest.size_bytes:
            return False
        if not replace and digest.size_bytes > ASK_FIRST_BYTES and self._is_there(digest, self._deadline()):
            return False
        try:
            stream = path.open("rb", buffering=0)
        except OSError as error:
            raise bodies.unreadable(path, error) from None
        with stream:
            body = RequestBody(stream=stream, size_bytes=digest.size_bytes, name=str(path), on_sent=on_sent)
            self._put(f"/cas/{digest.hash}", body, replace=replace)
        return True

    def read_result(self, key: Digest) -> bytes | None:
        doing = self._doing("GET", f"/ac/{key.hash}")
        with self._get(f"/ac/{key.hash}", doing, self._deadline()) as response:
            if response is None:
                return None
            data = bytearray()
            for chunk in bodies.chunks(response, doing):
                data += chunk
                if len(data) > MOST_RESULT_BYTES:
                    raise TransportError(
                        f"{doing}: a result of more than {MOST_RESULT_BYTES} bytes", kind=ErrorKind.ITEM
                    )
            announced = bodies.announced(response)
            if announced is not None and len(data) < announced:
                raise _cut_short(doing, len(data), announced)
        return bytes(data)

    def write_result(self, key: Digest, data: bytes, *, replace: bool = False) -> bool:
        """Without `replace`, check first whether there is a result, then write only if there is none.

        A server that ignores `If-None-Match` lets a later result replace one that was written in between.
        """
        path = f"/ac/{key.hash}"
        if not replace and self._head(path, self._deadline()) is not None:
            return False
        body = RequestBody(stream=io.BytesIO(data), size_bytes=len(data), name=f"the result of {key}")
        return self._put(path, body, headers={} if replace else {"If-None-Match": "*"}, replace=replace)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            pools = list(self._pools.values())
        for pool in pools:
            pool.close()

    # Requests

    def _is_there(self, digest: Digest, deadline: ThroughputDeadline) -> bool:
        headers = self._head(f"/cas/{digest.hash}", deadline)
        if headers is None:
            return False
        length = headers.get("Content-Length", "")
        return not length.isdigit() or int(length) == digest.size_bytes

    def _head(self, path: str, deadline: ThroughputDeadline) -> http.client.HTTPMessage | None:
        doing = self._doing("HEAD", path)
        target = self._address.path + path
        with self._exchange("HEAD", self._address.origin, target, doing, deadline) as response:
            if response.status in _ABSENT:
                return None
            self._check_success(response, doing)
            return response.headers

    def _put(
        self, path: str, body: RequestBody, *, headers: Mapping[str, str] | None = None, replace: bool = False
    ) -> bool:
        """PUT a body. False if a condition in `headers` is not met."""
        doing = self._doing("PUT", path)
        target = self._address.path + path
        with self._exchange(
            "PUT", self._address.origin, target, doing, self._deadline(), body, headers or {}
        ) as response:
            if response.status == http.HTTPStatus.PRECONDITION_FAILED and headers:
                return False
            if response.status in _STORED:
                return True
            error = self._unexpected(response, doing)
            status = response.status
        if replace and status in _NOT_TWICE and self._head(path, self._deadline()) is not None:
            # The user may write but not replace: only this object is affected.
            raise TransportError(
                f"{error.message}: the existing object may not be replaced",
                kind=ErrorKind.ITEM,
                advice=("delete it there, or allow this user to replace objects",),
            )
        raise error

    @contextlib.contextmanager
    def _get(self, path: str, doing: str, deadline: ThroughputDeadline) -> Iterator[http.client.HTTPResponse | None]:
        """The response to a GET, after redirects. None if the object is absent."""
        origin, target = self._address.origin, self._address.path + path
        for _ in range(_MOST_REDIRECTS):
            with self._exchange("GET", origin, target, doing, deadline) as response:
                if response.status in _ABSENT:
                    yield None
                    return
                if response.status not in _REDIRECTS:
                    self._check_success(response, doing)
                    _check_encoding(response, doing)
                    yield response
                    return
                origin, target = _redirected(origin, target, response, doing)
        raise TransportError(f"{doing}: more than {_MOST_REDIRECTS} redirects", kind=ErrorKind.UNUSABLE)

    @contextlib.contextmanager
    def _exchange(
        self,
        method: str,
        origin: Origin,
        target: str,
        doing: str,
        deadline: ThroughputDeadline,
        body: RequestBody | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        own = self._headers if origin == self._address.origin else {}
        with self._pool(origin).connection(deadline) as connection:
            try:
                is_whole = bodies.send(connection, method, target, {**own, **(headers or {})}, body)
                response = connection.client.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise errors.of_exception(error, doing) from None
            try:
                yield response
            finally:
                if is_whole:
                    connection.is_reusable = bodies.read_to_the_end(response)
                response.close()

    def _pool(self, origin: Origin) -> Pool:
        settings = self._settings
        with self._lock:
            if self._closed:
                raise TransportError(f"the connection to {self.address} is closed", kind=ErrorKind.UNUSABLE)
            pool = self._pools.get(origin)
            if pool is None:
                context = None
                if origin.scheme == "https":
                    is_own = origin == self._address.origin
                    context = tls_context(
                        settings.authorities,
                        settings.client_certificate if is_own else None,
                        settings.client_key if is_own else None,
                    )
                pool = Pool(origin, settings.deadlines, context, settings.connections)
                self._pools[origin] = pool
        return pool

    def _deadline(self) -> ThroughputDeadline:
        """The deadline of a request that begins now."""
        return self._settings.deadlines.transfer(idle=self._settings.deadlines.idle)

    def _doing(self, method: str, path: str) -> str:
        return f"{method} {self.address}{path}"

    def _check_success(self, response: http.client.HTTPResponse, doing: str) -> None:
        if response.status != http.HTTPStatus.OK:
            raise self._unexpected(response, doing)

    def _unexpected(self, response: http.client.HTTPResponse, doing: str) -> TransportError:
        advice: tuple[str, ...] = ()
        if response.status in _REDIRECTS:
            advice = ("only downloads follow redirects: set the address that the server redirects to",)
        elif response.status == http.HTTPStatus.BAD_REQUEST and self._function is not DigestFunction.SHA256:
            advice = ('many servers support only SHA-256: set digest = "sha256" in the [workspace] table',)
        return errors.of_status(response.status, response.getheader("Retry-After"), doing, advice=advice)


def _headers(address: HttpAddress, settings: ServerSettings) -> dict[str, str]:
    """The headers of each request. A header in the settings overrides the address, which overrides netrc."""
    headers = dict(settings.headers)
    if not any(name.lower() == "authorization" for name in headers):
        try:
            authorization = address.authorization or authorization_from_netrc(address.origin.host)
        except ValueError as error:
            raise TransportError(str(error), kind=ErrorKind.DENIED) from None
        if authorization:
            headers["Authorization"] = authorization
    return headers


def _redirected(origin: Origin, target: str, response: http.client.HTTPResponse, doing: str) -> tuple[Origin, str]:
    """The target of `Location`. It is never shown, because it may contain a signature that gives access."""
    try:
        parts = urllib.parse.urlsplit(urllib.parse.urljoin(f"{origin}{target}", response.getheader("Location", "")))
        there = Origin.of(parts)
    except ValueError:
        raise TransportError(f"{doing}: redirected to an address that is not http", kind=ErrorKind.UNUSABLE) from None
    if there.scheme != origin.scheme and there.scheme == "http":
        raise TransportError(f"{doing}: redirected from https to http", kind=ErrorKind.UNUSABLE)
    path = urllib.parse.quote(parts.path, safe=_IN_TARGETS)
    return there, f"{path}?{urllib.parse.quote(parts.query, safe=_IN_TARGETS)}" if parts.query else path


def _check_encoding(response: http.client.HTTPResponse, doing: str) -> None:
    encoding = response.getheader("Content-Encoding", "identity")
    if encoding != "identity":
        raise TransportError(f"{doing}: sent as {encoding!r}, which was not requested", kind=ErrorKind.UNUSABLE)


def _wrong_length(doing: str, received: int, expected: int) -> TransportError:
    return TransportError(f"{doing}: received {received} bytes instead of {expected}", kind=ErrorKind.ITEM)


def _cut_short(doing: str, received: int, expected: int) -> TransportError:
    return TransportError(f"{doing}: cut short after {received} of {expected} bytes", kind=ErrorKind.TRANSIENT)
