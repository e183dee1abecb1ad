"""Fetches a file from an http or https address. Hints: `urls`, one or more that serve the same bytes, tried in order.

Proxies and certificates are those of the user's environment, as `urllib.request` reads them. An interrupted download is
resumed. If the fetch fails, no partial file is left.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlcbuild.errors import FetchError
from mlcbuild.execution.fetch import verify
from mlcbuild.execution.fetch.progress import DownloadProgress, note

_CHUNK_BYTES = 1 << 18
_TIMEOUT_SECONDS = 60.0
_PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)  # before each further attempt since bytes last arrived
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


def run(*, file: Path, sha256: str, name: str, hints: dict[str, Any]) -> None:
    """Download to `file` from the first address that serves the pinned bytes. Raises FetchError."""
    verify.check_pin(sha256, name)
    errors: list[FetchError] = []
    for url in addresses(hints):
        try:
            return verify.receive(download(url), file=file, sha256=sha256, what=url)
        except FetchError as error:
            errors.append(error)
    raise _all_failed(errors)


def chunks(hints: Mapping[str, Any]) -> Iterator[bytes]:
    """The bytes from the first address that answers. Raises FetchError."""
    errors: list[FetchError] = []
    for url in addresses(hints):
        stream = download(url)
        try:
            first = next(stream, b"")
        except FetchError as error:
            errors.append(error)
            continue
        yield first
        yield from stream
        return
    raise _all_failed(errors)


def addresses(hints: Mapping[str, Any]) -> list[str]:
    """The addresses of a fetch. Raises FetchError if there are none."""
    urls = [url for url in hints.get("urls", ()) if isinstance(url, str)]
    if not urls:
        raise FetchError("a fetch over http needs at least one address in 'urls'")
    return urls


def download(url: str, headers: Mapping[str, str] | None = None) -> Iterator[bytes]:
    """The bytes at one address. After a transient failure the download is resumed. Raises FetchError.

    The header `Authorization` is sent only to the host of the address, and not to hosts that it redirects to.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise FetchError(f"{url!r} is not an http or https address")
    progress = DownloadProgress(url)
    received = 0
    version = ""
    pauses = iter(_PAUSES_SECONDS)
    while True:
        try:
            with _open(url, dict(headers or {}), received, version) as response:
                version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
                skip = received - _start(response)
                expected = _length(response)
                progress.total = None if expected is None else expected + received - skip
                for chunk in _read(response, expected):
                    wanted = chunk[skip:] if skip > 0 else chunk
                    skip = max(skip - len(chunk), 0)
                    if wanted:
                        received += len(wanted)
                        pauses = iter(_PAUSES_SECONDS)
                        progress.show(received)
                        yield wanted
                return
        except urllib.error.HTTPError as error:
            error.close()
            reason = f"HTTP {error.code} {error.reason}"
            if error.code not in _TRANSIENT:
                raise FetchError(f"{url}: {reason}", advice=_advice(error.code)) from None
        except (OSError, http.client.HTTPException, _IncompleteBodyError) as error:
            cause = getattr(error, "reason", None) or error
            reason = str(cause) or type(cause).__name__
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise FetchError(f"{url}: {reason}", advice=("name your certificates in SSL_CERT_FILE",)) from None
        pause = next(pauses, None)
        if pause is None:
            raise FetchError(
                f"{url}: {reason} (tried {len(_PAUSES_SECONDS) + 1} times)",
                advice=("check the network, or the proxy in HTTP_PROXY and HTTPS_PROXY",),
            )
        note(f"{url}: {reason}; trying again in {pause:g} s")
        time.sleep(pause)


class _IncompleteBodyError(Exception):
    """A body is shorter than its announced length."""


class _RedirectHandler(urllib.request.HTTPRedirectHandler):
    """Follows redirects, without credentials if they lead to another host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        followed = super().redirect_request(req, fp, code, msg, headers, newurl)
        if followed is not None and _origin(req.full_url) != _origin(followed.full_url):
            followed.remove_header("Authorization")
        return followed


@contextlib.contextmanager
def _open(url: str, headers: dict[str, str], start: int, version: str) -> Iterator[Any]:
    """An open response, from byte `start` if the server supports that and the content is still that `version`."""
    headers.setdefault("User-Agent", "mlcbuild")
    headers["Accept-Encoding"] = "identity"
    if start and version and not version.startswith("W/"):
        headers |= {"Range": f"bytes={start}-", "If-Range": version}
    request = urllib.request.Request(url, headers=headers)
    opener = urllib.request.build_opener(_RedirectHandler)
    with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
        yield response


def _start(response: Any) -> int:
    """The offset of the first byte of a response."""
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return 0
    unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
    first = rest.partition("-")[0]
    if unit != "bytes" or not first.isdigit():
        raise _IncompleteBodyError(f"a partial response with the range {response.headers.get('Content-Range')!r}")
    return int(first)


def _length(response: Any) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdigit() else None


def _read(response: Any, expected: int | None) -> Iterator[bytes]:
    count = 0
    while chunk := response.read(_CHUNK_BYTES):
        count += len(chunk)
        yield chunk
    if expected is not None and count < expected:
        raise _IncompleteBodyError(f"the connection was closed after {count} of {expected} bytes")


def _origin(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc


def _advice(code: int) -> tuple[str, ...]:
    if code in (401, 403):
        return ("the server requires credentials, or does not accept yours",)
    if code in (404, 410):
        return ("check the address: nothing is there",)
    return ()


def _all_failed(errors: list[FetchError]) -> FetchError:
    if len(errors) == 1:
        return errors[0]
    listed = "\n".join(str(error) for error in errors)
    return FetchError(f"none of {len(errors)} addresses served the file\n{listed}")
