"""A pool of connections to one origin, with the user's proxy and certificates.

It uses `http.client`, not urllib3. Timeouts of urllib3 limit single waits, not a whole call as needed here. And
importing urllib3 takes longer than fetching a small blob.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from mlcbuild.cache.remote.http import errors
from mlcbuild.cache.remote.http.address import Origin, basic
from mlcbuild.cache.remote.http.sockets import TimedSocket
from mlcbuild.cache.remote.settings import Deadlines
from mlcbuild.cache.remote.throughput_deadline import ThroughputDeadline
from mlcbuild.cache.remote.transport import ErrorKind, TransportError

# Servers and networks close connections that are silent for about a minute, and some do not notify the client.
_KEPT_SECONDS = 20.0


def tls_context(authorities: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Raises TransportError for files that are unreadable or not certificates."""
    try:
        context = ssl.create_default_context(cafile=None if authorities is None else str(authorities))
        if certificate is not None:
            context.load_cert_chain(str(certificate), None if key is None else str(key))
    except OSError as error:  # SSLError among them
        files = ", ".join(str(path) for path in (authorities, certificate) if path is not None)
        raise TransportError(
            f"the certificates in {files or 'SSL_CERT_FILE'} cannot be used: {error.strerror or error}",
            kind=ErrorKind.DENIED,
        ) from None
    return context


class Connection:
    """One connection, for one request at a time."""

    def __init__(self, client: http.client.HTTPConnection, timed: TimedSocket, prefix: str, proxy: str) -> None:
        self.client = client
        self.timed = timed
        self.prefix = prefix  # goes before the path of each request: the origin, if a proxy is used
        self.proxy_authorization = proxy
        self.is_reusable = False
        self.kept_since = 0.0

    def close(self) -> None:
        self.client.close()


class Pool:
    """Connections to one origin. Thread-safe. At most `most_kept` idle ones are kept; any number may be in use."""

    def __init__(self, origin: Origin, deadlines: Deadlines, context: ssl.SSLContext | None, most_kept: int) -> None:
        self.origin = origin
        self._deadlines = deadlines
        self._context = context
        self._most_kept = most_kept
        self._kept: list[Connection] = []
        self._lock = threading.Lock()
        self._closed = False
        self._proxy = _proxy_for(origin)

    @contextlib.contextmanager
    def connection(self, deadline: ThroughputDeadline) -> Iterator[Connection]:
        """A connection for one request, which ends by `deadline`; kept afterwards if its user set `is_reusable`."""
        connection = self._take(deadline)
        connection.is_reusable = False
        try:
            yield connection
        finally:
            self._give_back(connection)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()

    def _take(self, deadline: ThroughputDeadline) -> Connection:
        while True:
            with self._lock:
                connection = self._kept.pop() if self._kept else None
            if connection is None:
                return self._connect(deadline)
            if time.monotonic() - connection.kept_since < _KEPT_SECONDS and not connection.timed.is_readable():
                connection.timed.begin(deadline)
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        connection.kept_since = time.monotonic()
        with self._lock:
            keep = connection.is_reusable and not self._closed and len(self._kept) < self._most_kept
            if keep:
                self._kept.append(connection)
        if not keep:
            connection.close()

    def _connect(self, deadline: ThroughputDeadline) -> Connection:
        doing = f"connecting to {self.origin}"
        if self._proxy is not None:
            doing += f" through the proxy {self._proxy.hostname}"
        try:
            return self._connected(deadline, doing)
        except (OSError, http.client.HTTPException) as error:
            raise errors.of_exception(error, doing) from None

    def _connected(self, deadline: ThroughputDeadline, doing: str) -> Connection:
        origin, proxy, prefix, proxy_authorization = self.origin, self._proxy, "", ""
        host, port = origin.host, origin.port
        if proxy is not None:
            host, port = proxy.hostname or "", proxy.port or 80
            if proxy.username is not None:
                user, password = (urllib.parse.unquote(part or "") for part in (proxy.username, proxy.password))
                proxy_authorization = basic(user, password)
        opening = time.monotonic() + min(deadline.left, self._deadlines.connect)
        plain = socket.create_connection((host, port), timeout=max(opening - time.monotonic(), 0.001))
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client: http.client.HTTPConnection
            if origin.scheme == "https":
                if proxy is not None:
                    self._open_tunnel(plain, opening, proxy_authorization, doing)
                plain = self._with_tls(plain, opening, doing)
                client = http.client.HTTPSConnection(origin.host, origin.port, context=self._context)
                proxy_authorization = ""
            else:
                client = http.client.HTTPConnection(origin.host, origin.port)
                prefix = str(origin) if proxy is not None else ""
        except BaseException:
            plain.close()
            raise
        deadline.moved(0)  # A connection is a sign of life.
        timed = TimedSocket(plain, deadline)
        client.sock = timed
        return Connection(client, timed, prefix, proxy_authorization)

    def _with_tls(self, plain: socket.socket, end: float, doing: str) -> ssl.SSLSocket:
        assert self._context is not None
        plain.settimeout(max(end - time.monotonic(), 0.001))
        try:
            return self._context.wrap_socket(plain, server_hostname=self.origin.host)
        except (ssl.SSLCertVerificationError, ssl.SSLEOFError):
            raise
        except ssl.SSLError as error:
            raise TransportError(
                f"{doing}: TLS failed: {error.reason or error}",
                kind=ErrorKind.DENIED,
                advice=("check the port, and whether it is http or https",),
            ) from None

    def _open_tunnel(self, plain: socket.socket, end: float, proxy_authorization: str, doing: str) -> None:
        """Send `CONNECT` (RFC 9110, 9.3.6). Afterwards the connection leads to the origin."""
        host = f"[{self.origin.host}]" if ":" in self.origin.host else self.origin.host
        target = f"{host}:{self.origin.port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if proxy_authorization:
            lines.append(f"Proxy-Authorization: {proxy_authorization}")
        timed = TimedSocket(plain, ThroughputDeadline(slack=max(end - time.monotonic(), 0.0)))
        timed.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii"))
        response = http.client.HTTPResponse(timed, method="CONNECT")  # type: ignore[arg-type]
        try:
            response.begin()
            if response.status != http.HTTPStatus.OK:
                raise errors.of_status(response.status, response.getheader("Retry-After"), doing)
        finally:
            response.close()


def _proxy_for(origin: Origin) -> urllib.parse.SplitResult | None:
    """The proxy in the environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), as `urllib.request` reads it."""
    proxy = urllib.request.getproxies().get(origin.scheme, "")
    if not proxy or urllib.request.proxy_bypass(f"{origin.host}:{origin.port}"):
        return None
    parts = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    try:
        known = parts.scheme == "http" and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        known = False
    if not known:
        raise TransportError(
            f"the proxy in the environment for {origin} cannot be used",
            kind=ErrorKind.DENIED,
            advice=("set HTTP_PROXY and HTTPS_PROXY to http://host:port, or NO_PROXY to the cache's host",),
        )
    return parts
