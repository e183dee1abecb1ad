"""Where a REAPI cache is, and what its blobs are called there."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import Self

from mlcbuild.cache.digest import Digest, DigestFunction

# Segments that mean something in resource names, which therefore no instance name has (REAPI, "resource names").
_RESERVED = frozenset(
    {"blobs", "uploads", "actions", "actionResults", "operations", "capabilities", "compressed-blobs"}
)
_TLS_PORT = 443


@dataclass(frozen=True, kw_only=True)
class GrpcAddress:
    """`grpc(s)://host:port[/instance]`; the instance's name may have several segments, and may be empty."""

    is_encrypted: bool
    host: str  # without brackets where it is an IPv6 address
    port: int
    instance: str

    def __post_init__(self) -> None:
        segments = self.instance.split("/") if self.instance else []
        for segment in segments:
            if not segment or segment in _RESERVED or not segment.isprintable():
                raise ValueError(f"no part of an instance's name: {segment!r}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError, whose message holds nothing of `text` that may be secret."""
        parts = urllib.parse.urlsplit(text)
        if parts.scheme not in ("grpc", "grpcs"):
            raise ValueError(f"not grpc or grpcs: {parts.scheme!r}")
        if parts.username is not None:
            raise ValueError("a gRPC server knows no user and password: set a header with a token")
        if parts.query or parts.fragment:
            raise ValueError("the address of a gRPC cache has neither '?' nor '#'")
        port = parts.port or (_TLS_PORT if parts.scheme == "grpcs" else 0)
        if not parts.hostname or not port:
            raise ValueError("the address of a gRPC cache has a host and a port")
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
        """What ByteStream reads: `[instance/]blobs/[function/]hash/size`.

        The function is named unless it is one of those that REAPI has had from the first.
        """
        segments = [self.instance] if self.instance else []
        return "/".join([*segments, *_blob_segments(digest, function)])

    def upload_name(self, digest: Digest, function: DigestFunction, unique: str) -> str:
        """What ByteStream writes: `[instance/]uploads/unique/blobs/[function/]hash/size`."""
        segments = [self.instance] if self.instance else []
        return "/".join([*segments, "uploads", unique, *_blob_segments(digest, function)])


def _blob_segments(digest: Digest, function: DigestFunction) -> list[str]:
    named = [] if function is DigestFunction.SHA256 else [function.value]
    return ["blobs", *named, digest.hash, str(digest.size_bytes)]
