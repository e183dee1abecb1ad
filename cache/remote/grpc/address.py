"""The address of a REAPI cache, and the resource names of its blobs."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import Self

from mlcbuild.cache.digest import Digest, DigestFunction

# Segments with a meaning in resource names, which instance names must not contain (REAPI, "resource names").
_RESERVED = frozenset(
    {"blobs", "uploads", "actions", "actionResults", "operations", "capabilities", "compressed-blobs"}
)
_TLS_PORT = 443


@dataclass(frozen=True, kw_only=True)
class GrpcAddress:
    """`grpc(s)://host:port[/instance]`. The instance name may have several segments, and may be empty."""

    is_encrypted: bool
    host: str  # an IPv6 address without brackets
    port: int
    instance: str

    def __post_init__(self) -> None:
        segments = self.instance.split("/") if self.instance else []
        for segment in segments:
            if not segment or segment in _RESERVED or not segment.isprintable():
                raise ValueError(f"not allowed in an instance name: {segment!r}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError. Its message contains nothing of `text` that may be secret."""
        parts = urllib.parse.urlsplit(text)
        if parts.scheme not in ("grpc", "grpcs"):
            raise ValueError(f"not grpc or grpcs: {parts.scheme!r}")
        if parts.username is not None:
            raise ValueError("gRPC has no user names and passwords: set a header with a token")
        if parts.query or parts.fragment:
            raise ValueError("the address of a gRPC cache must not contain '?' or '#'")
        port = parts.port or (_TLS_PORT if parts.scheme == "grpcs" else 0)
        if not parts.hostname or not port:
            raise ValueError("the address of a gRPC cache needs a host and a port")
        instance = urllib.parse.unquote(parts.path, errors="strict").strip("/")
        return cls(is_encrypted=parts.scheme == "grpcs", host=parts.hostname, port=port, instance=instance)

    @property
    def target(self) -> str:
        """`host:port`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        scheme = "grpcs" if self.is_encrypted else "grpc"
        return f"{scheme}://{self.target}" + (f"/{self.instance}" if self.instance else "")

    def blob_name(self, digest: Digest, function: DigestFunction) -> str:
        """The name for ByteStream.Read: `[instance/]blobs/[function/]hash/size`.

        The digest function is left out if it is one of the first that REAPI had.
        """
        segments = [self.instance] if self.instance else []
        return "/".join([*segments, *_blob_segments(digest, function)])

    def upload_name(self, digest: Digest, function: DigestFunction, unique: str) -> str:
        """The name for ByteStream.Write: `[instance/]uploads/unique/blobs/[function/]hash/size`."""
        segments = [self.instance] if self.instance else []
        return "/".join([*segments, "uploads", unique, *_blob_segments(digest, function)])


def _blob_segments(digest: Digest, function: DigestFunction) -> list[str]:
    named = [] if function is DigestFunction.SHA256 else [function.value]
    return ["blobs", *named, digest.hash, str(digest.size_bytes)]
