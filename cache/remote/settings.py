"""Settings of a server beside its address: time limits, headers with credentials, certificates."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.cache.remote.throughput_deadline import ThroughputDeadline

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")


_LARGEST_PIECE_BYTES = 1 << 20
_MOST_CONNECTIONS = 256


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """Time limits in seconds, which hold whatever the server does.

    A call whose bytes are seen moving has the deadline `transfer`. Any other call ends after `total_for` its bytes.

    The minimum throughput is that of one transfer. A line of two megabits a second can carry sixteen transfers at once,
    the most that a build makes, at this throughput. A server that sends one byte a second is far below it.
    """

    connect: float = 10.0
    idle: float = 30.0  # the longest silence on an open connection
    total: float = 60.0  # for a call that moves next to nothing; every call gets this besides the time for its bytes
    bytes_per_second: float = 16 * 1024  # the throughput below which a transfer is given up

    def __post_init__(self) -> None:
        for name in ("connect", "idle", "total", "bytes_per_second"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"the time limit {name} must be finite and above 0: {value!r}")

    def total_for(self, size_bytes: int) -> float:
        """The limit of a call whose bytes nobody sees moving."""
        return self.total + size_bytes / self.bytes_per_second

    def transfer(self, *, idle: float = math.inf) -> ThroughputDeadline:
        """The deadline of a call that begins now and reports its bytes as they move."""
        return ThroughputDeadline(slack=self.total, bytes_per_second=self.bytes_per_second, idle=idle)

    @property
    def piece_bytes(self) -> int:
        """The most bytes to wait for without reporting progress: a quarter of `total` at the minimum throughput."""
        return max(1024, min(_LARGEST_PIECE_BYTES, int(self.total * self.bytes_per_second / 4)))


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of one server. `headers` are sent with every request to this server only, and never shown."""

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    deadlines: Deadlines = Deadlines()
    authorities: Path | None = None  # certificates (PEM) to trust instead of the system's
    client_certificate: Path | None = None  # PEM, the chain
    client_key: Path | None = field(default=None, repr=False)  # PEM
    connections: int = 16  # simultaneous calls of one method

    def __post_init__(self) -> None:
        if not 1 <= self.connections <= _MOST_CONNECTIONS:
            raise ValueError(f"connections must be from 1 to {_MOST_CONNECTIONS}, not {self.connections}")
        if (self.client_certificate is None) != (self.client_key is None):
            raise ValueError("a client certificate and its key must be set together")
        for name, value in self.headers:
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"not a header name: {name!r}")
            if not _HEADER_VALUE.fullmatch(value):
                raise ValueError(
                    f"the value of the header {name!r} contains a character that is not allowed in headers"
                )
