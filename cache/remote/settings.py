"""What is set for a server beside its address: time limits, headers with credentials, certificates."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """Seconds. Every call ends within `whole_for` the bytes that it moves, whatever the server does."""

    connect: float = 10.0
    idle: float = 30.0  # the longest silence on an open connection
    whole: float = 60.0  # a call that moves next to nothing
    bytes_per_second: float = 64 * 1024  # the pace below which moving a blob is given up

    def __post_init__(self) -> None:
        for name in ("connect", "idle", "whole", "bytes_per_second"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"a deadline's {name} has to be above 0 and finite: {value!r}")

    def whole_for(self, size_bytes: int) -> float:
        return self.whole + size_bytes / self.bytes_per_second


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """`headers` go with every request to the server itself and to no other; they are never shown."""

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    deadlines: Deadlines = Deadlines()
    authorities: Path | None = None  # certificates (PEM) to trust instead of the system's
    client_certificate: Path | None = None  # PEM, the chain
    client_key: Path | None = field(default=None, repr=False)  # PEM
    connections: int = 16  # the most calls at a time that one method makes

    def __post_init__(self) -> None:
        if self.connections < 1:
            raise ValueError(f"at least one connection is needed: {self.connections}")
        if (self.client_certificate is None) != (self.client_key is None):
            raise ValueError("a client certificate and its key go together")
        for name, value in self.headers:
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"not the name of a header: {name!r}")
            if not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"the value of the header {name!r} has a character that no header may have")
