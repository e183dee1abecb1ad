"""Settings of a bucket and its server."""

from __future__ import annotations

import enum
import re
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, Self

from mlcbuild.cache.remote.s3.layout import Layout
from mlcbuild.cache.remote.settings import Deadlines

MIB = 1 << 20
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Addressing(enum.Enum):
    """How requests name the bucket. AUTO: in the host for AWS, in the path for others."""

    AUTO = "auto"
    PATH = "path"
    VIRTUAL = "virtual"


class Checksums(enum.Enum):
    """Whether uploads have a CRC32. AUTO: until the server rejects one (boto/boto3#4392)."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """All settings but credentials, which boto finds: environment, files, SSO, roles.

    Empty strings mean what boto finds. Each request and each method has its own time limit, by the bytes that it
    transfers. `connections` is the number of simultaneous requests for parts of large blobs and for lookups, over all
    callers. Blobs above `multipart_bytes` are sent in at most 9,000 parts of at least `part_bytes`. Blobs above
    `ranged_bytes` are read in ranges of `range_bytes`.
    """

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""
    profile: str = ""
    addressing: Addressing = Addressing.AUTO
    layout: Layout = Layout.NATIVE
    checksums: Checksums = Checksums.AUTO
    deadlines: Deadlines = field(default_factory=Deadlines)
    connections: int = 8
    multipart_bytes: int = 64 * MIB
    part_bytes: int = 16 * MIB
    ranged_bytes: int = 16 * MIB
    range_bytes: int = 16 * MIB

    def __post_init__(self) -> None:
        if not _BUCKET.fullmatch(self.bucket):
            raise ValueError(f"not a bucket name: {self.bucket!r}")
        if self.prefix and (_CONTROL.search(self.prefix) or {"", ".", ".."} & set(self.prefix.split("/"))):
            raise ValueError(f"not a prefix of keys: {self.prefix!r}; write names with single slashes between them")
        if self.endpoint:
            parts = urllib.parse.urlsplit(self.endpoint)
            if "@" in parts.netloc:
                raise ValueError("an endpoint must not contain credentials: they are found as the AWS tools find them")
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ValueError(f"not the address of a server, http(s)://host[:port]: {self.endpoint!r}")
        for name in ("connections", "range_bytes", "ranged_bytes", "multipart_bytes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is not positive: {getattr(self, name)!r}")
        if self.part_bytes < 5 * MIB:
            raise ValueError(f"S3 takes parts of 5 MiB and more, not of {self.part_bytes} bytes")

    @classmethod
    def of_address(cls, address: str, **others: Any) -> Self:
        """From `s3://bucket[/prefix]`. Raises ValueError for anything else."""
        rest = address.removeprefix("s3://")
        if rest == address or "?" in rest or "#" in rest or "@" in rest.partition("/")[0]:
            raise ValueError("not an address in S3, s3://bucket/prefix without anything else")
        bucket, _, prefix = rest.partition("/")
        return cls(bucket=bucket, prefix=prefix.rstrip("/"), **others)

    @property
    def address(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}" if self.prefix else f"s3://{self.bucket}"
