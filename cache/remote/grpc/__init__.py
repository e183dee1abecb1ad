"""Remotes that speak the Remote Execution API over gRPC. Importing this package imports no gRPC and no TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.remote.settings import ServerSettings
from mlcbuild.cache.remote.transport import DigestFunctionError, ErrorKind, TransportError

if TYPE_CHECKING:
    from mlcbuild.cache.remote.grpc.calls import Calls
    from mlcbuild.cache.remote.grpc.messages import Capabilities
    from mlcbuild.cache.remote.grpc.transport import GrpcTransport


def connect(address: str, function: DigestFunction, settings: ServerSettings | None = None) -> GrpcTransport:
    """A transport to `grpc(s)://host:port[/instance]`, once the server has told its capabilities.

    Raises TransportError: REFUSED for an address, an instance or certificates that cannot be used, UNUSABLE for a
    server that names blobs by another function and where grpcio is not installed, and what the call comes to.
    """
    from mlcbuild.cache.remote.grpc.address import GrpcAddress
    from mlcbuild.cache.remote.grpc.calls import Calls
    from mlcbuild.cache.remote.grpc.transport import GrpcTransport

    settings = settings or ServerSettings()
    try:
        parsed = GrpcAddress.parse(address)
    except ValueError as error:
        raise TransportError(
            f"the address of the remote cache cannot be used: {error}",
            kind=ErrorKind.REFUSED,
            advice=("give it as grpcs://host:port/instance",),
        ) from None
    calls = Calls(parsed, settings)
    try:
        capabilities = _capabilities(calls, parsed.instance, str(parsed), settings)
        _check_function(capabilities, function, str(parsed))
    except BaseException:
        calls.close()
        raise
    return GrpcTransport(parsed, function, calls, capabilities)


def _capabilities(calls: Calls, instance: str, address: str, settings: ServerSettings) -> Capabilities:
    from mlcbuild.cache.remote.grpc import messages
    from mlcbuild.cache.remote.grpc.errors import CallError
    from mlcbuild.cache.remote.grpc.transport import GET_CAPABILITIES

    doing = f"asking {address} what it can do"
    seconds = settings.deadlines.connect + settings.deadlines.idle
    try:
        answer = calls.unary(GET_CAPABILITIES, messages.get_capabilities(instance), doing, seconds=seconds)
    except CallError as error:
        if error.code not in ("INVALID_ARGUMENT", "NOT_FOUND"):
            raise
        named = f'"{instance}"' if instance else "the one without a name"
        raise TransportError(
            error.message,
            kind=ErrorKind.REFUSED,
            advice=(f"check the instance in the address of the remote cache: {named} was asked for",),
        ) from None
    try:
        return messages.Capabilities.decode(answer)
    except ValueError as error:
        raise TransportError(f"{doing}: the answer cannot be understood: {error}", kind=ErrorKind.UNUSABLE) from None


def _check_function(capabilities: Capabilities, function: DigestFunction, address: str) -> None:
    offered = capabilities.functions or {DigestFunction.SHA256.reapi_number}
    if function.reapi_number in offered:
        return
    usable = [other.value for other in DigestFunction if other.reapi_number in offered]
    advice = tuple(
        f'set digest = "{other}" in the [workspace] table of the root BUILD.toml, or use another remote'
        for other in usable
    )
    raise DigestFunctionError(
        f"{address} does not name blobs by {function.value}, as this workspace does",
        advice=advice or ("use another remote: this one names blobs by no function that mlcbuild knows",),
    )
