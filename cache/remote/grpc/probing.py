"""The probe of a REAPI server. REAPI has neither conditional writes nor deletion."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote import grpc
from mlcbuild.cache.remote.probing import Support
from mlcbuild.cache.remote.settings import ServerSettings
from mlcbuild.cache.remote.transport import ErrorKind, Transport, TransportError

if TYPE_CHECKING:
    from mlcbuild.cache.remote.grpc.transport import GrpcTransport


class GrpcProbe:
    """See `mlcbuild.cache.remote.probing.Probe`."""

    removes = False

    def __init__(self, address: str, function: DigestFunction, settings: ServerSettings) -> None:
        self._address = address
        self._function = function
        self._settings = settings
        self._opened: GrpcTransport | None = None
        self.naming = f"{function.value}, as the server says itself"

    @property
    def transport(self) -> Transport:
        return self._connected()

    def credentials(self) -> str:
        names = ", ".join(name for name, _ in self._settings.headers)
        found = [f"header {names} of the settings"] if names else []
        if self._settings.client_certificate is not None:
            found.append("a client certificate")
        return ", ".join(found)

    def server_time(self) -> float | None:
        return None

    def condition(self, _digest: Digest, _data: bytes, /) -> Support:
        return Support.NOT_APPLICABLE

    def checksum(self, digest: Digest, data: bytes, /) -> Support:
        """Upload wrong bytes, which REAPI requires a server to reject. If it does not, upload the right bytes."""
        with tempfile.TemporaryDirectory(prefix="mlcbuild-doctor-") as folder:
            path = Path(folder) / "blob"
            path.write_bytes(bytes([data[0] ^ 0x40]) + data[1:])
            try:
                self._connected().upload(digest, path, replace=True)
            except TransportError as error:
                if error.kind in (ErrorKind.UNUSABLE, ErrorKind.ITEM):
                    return Support.SUPPORTED
                raise
            path.write_bytes(data)
            self._connected().upload(digest, path, replace=True)
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

    def _connected(self) -> GrpcTransport:
        if self._opened is None:
            self._opened = grpc.connect(self._address, self._function, self._settings)
        return self._opened
