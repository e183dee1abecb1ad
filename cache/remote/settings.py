"""What is set for a server beside its address: time limits, headers with credentials, certificates."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.cache.remote.pace import Pace

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")


_LARGEST_PIECE_BYTES = 1 << 20
_MOST_CONNECTIONS = 256


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """Seconds. A call whose bytes are seen moving ends by its `pace`, any other within `whole_for` its bytes, whatever
    the server does.

    The least pace is one of a single transfer: it lets a line of two megabits a second serve sixteen at a time, the
    most that a build makes, and a byte a second is far below it.
    """

    connect: float = 10.0
    idle: float = 30.0  # the longest silence on an open connection
    whole: float = 60.0  # a call that moves next to nothing, and any stretch of one beyond the time for its bytes
    bytes_per_second: float = 16 * 1024  # the pace below which moving a blob is given up

    def __post_init__(self) -> None:
        for name in ("connect", "idle", "whole", "bytes_per_second"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"a deadline's {name} has to be above 0 and finite: {value!r}")

    def whole_for(self, size_bytes: int) -> float:
        """For bytes that nobody sees move."""
        return self.whole + size_bytes / self.bytes_per_second

    def pace(self, *, idle: float = math.inf) -> Pace:
        """For a call that begins now and whose bytes are told to it as they move."""
        return Pace(slack=self.whole, bytes_per_second=self.bytes_per_second, idle=idle)

    @property
    def piece_bytes(self) -> int:
        """How many bytes may be waited for without telling a pace: at the least pace, a quarter of `whole`."""
        return max(1024, min(_LARGEST_PIECE_BYTES, int(self.whole * self.bytes_per_second / 4)))


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
        if not 1 <= self.connections <= _MOST_CONNECTIONS:
            raise ValueError(f"connections must be from 1 to {_MOST_CONNECTIONS}, not {self.connections}")
        if (self.client_certificate is None) != (self.client_key is None):
            raise ValueError("a client certificate and its key go together")
        for name, value in self.headers:
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"not the name of a header: {name!r}")
            if not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"the value of the header {name!r} has a character that no header may have")
