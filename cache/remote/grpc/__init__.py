"""Remote caches with the Remote Execution API over gRPC. Importing this package imports neither gRPC nor TLS."""

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
    """A transport to `grpc(s)://host:port[/instance]`. Asks the server for its capabilities.

    Raises TransportError: DENIED for an address, an instance or certificates that cannot be used; UNUSABLE for a server
    with another digest function, and if grpcio is not installed; and the errors of the call.
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
            kind=ErrorKind.DENIED,
            advice=("write it as grpcs://host:port/instance",),
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

    doing = f"asking {address} for its capabilities"
    seconds = settings.deadlines.connect + settings.deadlines.idle
    try:
        answer = calls.unary(GET_CAPABILITIES, messages.get_capabilities(instance), doing, seconds=seconds)
    except CallError as error:
        if error.code not in ("INVALID_ARGUMENT", "NOT_FOUND"):
            raise
        named = f'"{instance}"' if instance else "the unnamed instance"
        raise TransportError(
            error.message,
            kind=ErrorKind.DENIED,
            advice=(f"check the instance in the address of the remote cache: {named} was requested",),
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
        f'set digest = "{other}" in the [workspace] table of the root BUILD.toml, or use another remote cache'
        for other in usable
    )
    raise DigestFunctionError(
        f"{address} does not support {function.value}, the digest function of this workspace",
        advice=advice or ("use another remote cache: this one supports no digest function of mlcbuild",),
    )
