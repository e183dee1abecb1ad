"""Remote caches with Bazel's HTTP protocol. Importing this package imports neither HTTP nor TLS."""

from __future__ import annotations

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.remote.settings import ServerSettings
from mlcbuild.cache.remote.transport import ErrorKind, Transport, TransportError


def connect(address: str, function: DigestFunction, settings: ServerSettings | None = None) -> Transport:
    """A transport to `http(s)://[user:password@]host[:port][/path]`. Makes no request yet.

    Raises TransportError (DENIED) for an address, certificates, a proxy or a netrc file that cannot be used.
    """
    from mlcbuild.cache.remote.http.address import HttpAddress
    from mlcbuild.cache.remote.http.transport import HttpTransport

    try:
        parsed = HttpAddress.parse(address)
    except ValueError as error:
        raise TransportError(
            f"the address of the remote cache cannot be used: {error}",
            kind=ErrorKind.DENIED,
            advice=("write it as https://host:port/path",),
        ) from None
    return HttpTransport(parsed, function, settings or ServerSettings())
