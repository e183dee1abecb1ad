"""Which bucket, and how to talk to its server."""

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
    """How the bucket is named in a request. AUTO: in the host at AWS, in the path everywhere else."""

    AUTO = "auto"
    PATH = "path"
    VIRTUAL = "virtual"


class Checksums(enum.Enum):
    """Whether uploads carry a CRC32 for the server to check. AUTO: until it refuses one (boto/boto3#4392)."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Everything but credentials, which are boto's own to find: environment, files, SSO, roles.

    Empty texts mean what boto finds. Every request has a deadline of its own, and so has every method, by the bytes
    that it moves. `connections` is the number of requests that the parts of large blobs and look-ups make at once,
    over all callers. Blobs above `multipart_bytes` are sent in parts of `part_bytes`, or as many times more as keeps
    them below 9,000; blobs above `ranged_bytes` are read in ranges of `range_bytes`.
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
            raise ValueError(f"not a name of a bucket: {self.bucket!r}")
        if self.prefix and (_CONTROL.search(self.prefix) or {"", ".", ".."} & set(self.prefix.split("/"))):
            raise ValueError(f"not a prefix of keys, names with single slashes between them: {self.prefix!r}")
        if self.endpoint:
            parts = urllib.parse.urlsplit(self.endpoint)
            if "@" in parts.netloc:
                raise ValueError("an endpoint holds no credentials: give them in boto's own settings")
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ValueError(f"not an address of a server, http(s)://host[:port]: {self.endpoint!r}")
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
