"""What a kind of server may tell, or can be tried for, beside moving bytes: for who looks whether all is well.

A probe makes requests of its own, each within the deadlines of its settings, and retries nothing. What it writes are
blobs of the caller's, under their right names; all methods raise `TransportError` alone.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Protocol

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.configuration import RemoteConfiguration
from mlcbuild.cache.remote.transport import Transport


class Heed(enum.Enum):
    """What a server does with a demand that a request makes."""

    HEEDED = "heeded"
    IGNORED = "ignore_progress"  # the request succeeds as though nothing had been demanded
    REFUSED = "refused"  # the server does not know the demand, and says so
    NOT_MADE = "not made"  # this kind of server has no such demand


class Probe(Protocol):
    """One server and one place in it, as a transport has them."""

    @property
    def transport(self) -> Transport:
        """To the same place; connected to when it is first asked for."""
        ...

    naming: str  # by which function blobs are named, and whether the server knows, for people
    removes: bool  # whether this kind of server can remove things: where not, `remove` does nothing

    def credentials(self) -> str:
        """Of what kind they are and where they were found, never what they are; "" where none are sent."""
        ...

    def server_time(self) -> float | None:
        """What the server's clock shows, in seconds since 1970, in whole seconds; None where it does not tell."""
        ...

    def condition(self, digest: Digest, data: bytes, /) -> Heed:
        """Whether a second write is refused that demands that nothing be there. Leaves at most the blob."""
        ...

    def checksum(self, digest: Digest, data: bytes, /) -> Heed:
        """Whether bytes are refused that are not those that the request promises. Leaves at most the blob."""
        ...

    def upload_in_parts(self, digest: Digest, path: Path, /) -> bool:
        """Store a blob of more than `PARTED_BYTES` in parts; False where this kind of server has none."""
        ...

    def remove(self, digest: Digest, /) -> None:
        """Remove a blob, there or not."""
        ...

    def remove_result(self, key: Digest, /) -> None:
        """Remove what is kept under a key, there or not."""
        ...

    def close(self) -> None:
        """Let connections go."""
        ...


PARTED_BYTES = 5 << 20


def open_probe(configuration: RemoteConfiguration, function: DigestFunction) -> Probe:
    """For the configuration's address, without its namespace. Nothing is imported or asked for yet."""
    if configuration.scheme == "s3":
        from mlcbuild.cache.remote.s3.probing import S3Probe

        return S3Probe(configuration.s3_settings(), function)
    if configuration.scheme in ("http", "https"):
        from mlcbuild.cache.remote.http.probing import HttpProbe

        return HttpProbe(configuration.address, function, configuration.server)
    from mlcbuild.cache.remote.grpc.probing import GrpcProbe

    return GrpcProbe(configuration.address, function, configuration.server)
