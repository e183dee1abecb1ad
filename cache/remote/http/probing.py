"""The probe of a server with Bazel's HTTP protocol. The protocol requires little; some servers do more."""

from __future__ import annotations

import contextlib
import email.utils
import io
import os
from pathlib import Path

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.reapi import ActionResult, ExecutedActionMetadata
from mlcbuild.cache.remote.http.address import HttpAddress, authorization_from_netrc
from mlcbuild.cache.remote.http.bodies import RequestBody
from mlcbuild.cache.remote.http.transport import HttpTransport
from mlcbuild.cache.remote.probing import Support
from mlcbuild.cache.remote.settings import ServerSettings
from mlcbuild.cache.remote.transport import ErrorKind, Transport, TransportError

_CONDITION_KEY = b"mlcbuild doctor: may a result be written over?"


class HttpProbe:
    """See `mlcbuild.cache.remote.probing.Probe`."""

    removes = False

    def __init__(self, address: str, function: DigestFunction, settings: ServerSettings) -> None:
        self._address = HttpAddress.parse(address)
        self._function = function
        self._settings = settings
        self._opened: _Raw | None = None
        self.naming = f"{function.value}, which nothing in this protocol tells the server"

    @property
    def transport(self) -> Transport:
        return self._raw

    def credentials(self) -> str:
        found = []
        names = [name for name, _ in self._settings.headers]
        if names:
            found.append(f"header {', '.join(names)} of the settings")
        if not any(name.lower() == "authorization" for name in names):
            try:
                if self._address.authorization:
                    found.append("name and password in the address")
                elif authorization_from_netrc(self._address.origin.host):
                    found.append("name and password in the netrc file")
            except ValueError as error:
                raise TransportError(str(error), kind=ErrorKind.DENIED) from None
        if self._settings.client_certificate is not None:
            found.append("a client certificate")
        return ", ".join(found)

    def server_time(self) -> float | None:
        with contextlib.suppress(ValueError, TypeError, OverflowError, TransportError):
            return email.utils.parsedate_to_datetime(self._raw.date()).timestamp()
        return None

    def condition(self, _digest: Digest, _data: bytes, /) -> Support:
        """Write an empty result, always under the same key, because the protocol cannot delete it."""
        key = self._function.of_bytes(_CONDITION_KEY)
        for worker in ("mlcbuild doctor, first", "mlcbuild doctor, second"):
            result = ActionResult(execution_metadata=ExecutedActionMetadata(worker=worker)).encode()
            try:
                if not self._raw.put_where_nothing_is(f"/ac/{key.hash}", result):
                    return Support.SUPPORTED
            except TransportError as error:
                if error.kind is ErrorKind.UNUSABLE:
                    return Support.REJECTED
                raise
        return Support.IGNORED

    def checksum(self, digest: Digest, data: bytes, /) -> Support:
        """Upload wrong bytes. If the server accepts them, upload the right bytes."""
        spoiled = bytes([data[0] ^ 0x40]) + data[1:]
        try:
            self._raw.put(f"/cas/{digest.hash}", spoiled)
        except TransportError as error:
            if error.kind in (ErrorKind.UNUSABLE, ErrorKind.ITEM):
                return Support.SUPPORTED
            raise
        self._raw.put(f"/cas/{digest.hash}", data)
        return Support.IGNORED

    def upload_in_parts(self, _digest: Digest, _path: Path, /) -> bool:
        return False

    def remove(self, _digest: Digest, /) -> None:
        """Does nothing."""

    def remove_result(self, _key: Digest, /) -> None:
        """Does nothing."""

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    @property
    def _raw(self) -> _Raw:
        if self._opened is None:
            self._opened = _Raw(self._address, self._function, self._settings)
        return self._opened


class _Raw(HttpTransport):
    """Requests that only a probe makes."""

    def date(self) -> str:
        """The `Date` of an answer; "" if it has none."""
        path = f"/cas/{os.urandom(32).hex()}"
        doing, target = self._doing("HEAD", path), self._address.path + path
        with self._exchange("HEAD", self._address.origin, target, doing, self._deadline()) as response:
            return str(response.headers.get("Date", ""))

    def put(self, path: str, data: bytes) -> None:
        self._put(path, _body(data))

    def put_where_nothing_is(self, path: str, data: bytes) -> bool:
        """Write conditionally. False if the server answers that something exists (412)."""
        return self._put(path, _body(data), headers={"If-None-Match": "*"})


def _body(data: bytes) -> RequestBody:
    return RequestBody(stream=io.BytesIO(data), size_bytes=len(data), name="the test data")
