"""Probes: what a server supports, beside moving bytes. `mlcbuild doctor` uses them.

A probe makes its own requests, within the time limits of its settings and without retries. It writes blobs of the
caller under their right names. All methods raise only `TransportError`.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Protocol

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.configuration import RemoteConfiguration
from mlcbuild.cache.remote.transport import Transport


class Support(enum.Enum):
    """What a server does with a condition or checksum in a request."""

    SUPPORTED = "supported"
    IGNORED = "ignored"  # the request succeeds as if the header were not there
    REJECTED = "rejected"  # the server answers that it does not support the header
    NOT_APPLICABLE = "not applicable"  # this kind of server has no such header


class Probe(Protocol):
    """One server and one place in it, like those of a transport."""

    @property
    def transport(self) -> Transport:
        """A transport to the same place. It connects when it is first used."""
        ...

    naming: str  # for people: the digest function, and whether the server knows it
    removes: bool  # whether this kind of server can delete; if not, `remove` does nothing

    def credentials(self) -> str:
        """The kind of credentials and where they were found, but no secret. "" if none are sent."""
        ...

    def server_time(self) -> float | None:
        """The server's clock, in whole seconds since 1970. None if the server does not tell."""
        ...

    def condition(self, digest: Digest, data: bytes, /) -> Support:
        """Whether a second write fails on the condition that nothing exists yet. Leaves at most the blob."""
        ...

    def checksum(self, digest: Digest, data: bytes, /) -> Support:
        """Whether a write with a wrong checksum fails. Leaves at most the blob."""
        ...

    def upload_in_parts(self, digest: Digest, path: Path, /) -> bool:
        """Upload a blob of more than `PARTED_BYTES` in parts. False if this kind of server has no parts."""
        ...

    def remove(self, digest: Digest, /) -> None:
        """Delete a blob, if it exists."""
        ...

    def remove_result(self, key: Digest, /) -> None:
        """Delete the result of a key, if it exists."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


PARTED_BYTES = 5 << 20


def open_probe(configuration: RemoteConfiguration, function: DigestFunction) -> Probe:
    """A probe of the configuration's address, without its namespace. Makes no request yet."""
    if configuration.scheme == "s3":
        from mlcbuild.cache.remote.s3.probing import S3Probe

        return S3Probe(configuration.s3_settings(), function)
    if configuration.scheme in ("http", "https"):
        from mlcbuild.cache.remote.http.probing import HttpProbe

        return HttpProbe(configuration.address, function, configuration.server)
    from mlcbuild.cache.remote.grpc.probing import GrpcProbe

    return GrpcProbe(configuration.address, function, configuration.server)
