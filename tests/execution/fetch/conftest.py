"""A server on the loopback interface that serves bytes, and misbehaves if a test says so."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest


@dataclass(kw_only=True)
class Site:
    """What is served: `pages` by path. The other fields say how."""

    port: int
    pages: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    failures: list[int] = field(default_factory=list)  # status codes of the next answers
    cuts: list[int] = field(default_factory=list)  # the next bodies break off after so many bytes
    ranges: bool = True  # whether Range is honoured
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # path and lower-case headers

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        site = self.site
        path = self.path.partition("?")[0]
        headers = {name.lower(): value for name, value in self.headers.items()}
        site.requests.append((path, headers))
        if site.failures:
            return self._answer(site.failures.pop(0), b"")
        if path in site.redirects:
            return self._answer(302, b"", Location=site.redirects[path])
        if path not in site.pages:
            return self._answer(404, b"nothing here")
        body = site.pages[path]
        start = 0
        if site.ranges and "range" in headers:
            start = int(headers["range"].removeprefix("bytes=").partition("-")[0])
        extra = {"ETag": '"v1"'}
        if start:
            extra["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        return self._answer(206 if start else 200, body[start:], **extra)

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = self.site.cuts.pop(0) if self.site.cuts and status in (200, 206) else len(body)
        self.wfile.write(body[:cut])

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def sites() -> Iterator[list[Site]]:
    """Two sites on two ports."""
    servers = []
    made = []
    for _ in range(2):
        handler = type("Handler", (_Handler,), {})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        handler.site = Site(port=server.server_port)  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        servers.append((server, thread))
        made.append(handler.site)  # type: ignore[attr-defined]
    yield made
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def site(sites: list[Site]) -> Site:
    return sites[0]


@pytest.fixture(autouse=True)
def _no_proxy_and_no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use no proxy for the loopback interface, and retry at once."""
    from mlcbuild.execution.fetch import http as fetch_http
    from mlcbuild.execution.fetch import s3

    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fetch_http, "_PAUSES_SECONDS", (0.0, 0.0, 0.0))
    monkeypatch.setattr(s3, "_PAUSES_SECONDS", (0.0, 0.0, 0.0))
