"""The address of an HTTP cache, and its credentials."""

from __future__ import annotations

import base64
import os
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The server of a connection. An IPv6 address in `host` has no brackets."""

    scheme: str
    host: str
    port: int

    def __post_init__(self) -> None:
        if self.scheme not in _PORTS:
            raise ValueError(f"not http or https: {self.scheme!r}")
        if not self.host:
            raise ValueError("the address has no host")

    @classmethod
    def of(cls, parts: urllib.parse.SplitResult) -> Self:
        """Raises ValueError for another scheme, a missing host, or an invalid port."""
        return cls(
            scheme=parts.scheme,
            host=parts.hostname or "",
            port=_PORTS.get(parts.scheme, 0) if parts.port is None else parts.port,
        )

    @property
    def netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}"


@dataclass(frozen=True, kw_only=True)
class HttpAddress:
    """`http(s)://[user:password@]host[:port][/path]`; `path` is as written, without a trailing slash."""

    origin: Origin
    path: str
    authorization: str = field(default="", repr=False)  # the header's value, from the address

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError. Its message contains nothing of `text` that may be secret."""
        parts = urllib.parse.urlsplit(text)
        if parts.query or parts.fragment:
            raise ValueError("the address of an HTTP cache must not contain '?' or '#'")
        path = parts.path.rstrip("/")
        if not path.isascii() or any(character <= " " or character == "\x7f" for character in path):
            raise ValueError("the path of an HTTP cache must be percent-encoded ASCII")
        authorization = ""
        if parts.username is not None:
            user, password = (urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
            authorization = basic(user, password)
        return cls(origin=Origin.of(parts), path=path, authorization=authorization)

    def __str__(self) -> str:
        return f"{self.origin}{self.path}"


def basic(user: str, password: str) -> str:
    """The header for Basic authentication (RFC 7617), in UTF-8."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def authorization_from_netrc(host: str) -> str:
    """The header from the entry of `host` in `$NETRC` or `~/.netrc`; "" if there is none.

    The entry `default` is ignored, because it would send a password to any host. Raises ValueError for a file in
    another format.
    """
    import netrc

    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    try:
        entry = netrc.netrc(str(path)).hosts.get(host)
    except OSError:
        return ""
    except netrc.NetrcParseError as error:
        raise ValueError(f"{path}:{error.lineno}: not in the format of a netrc file") from None
    return "" if entry is None or host == "default" else basic(entry[0], entry[2] or "")
