"""Opens the remote cache of a configuration. Clients are imported, and connections made, when they are first used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.remote.configuration import RemoteConfiguration
from mlcbuild.cache.remote.signing import UNSIGNED, Signatures
from mlcbuild.cache.remote.transport import (
    BatchingTransport,
    DigestFunctionError,
    OnSent,
    Sink,
    Transport,
    TransportError,
    ignore_progress,
)
from mlcbuild.errors import MlcbuildError, WorkspaceError

if TYPE_CHECKING:
    from mlcbuild.cache.remote.remote_store import RemoteStore
    from mlcbuild.cache.remote.server_lookup import Check

ErrorMapper = Callable[[DigestFunctionError], MlcbuildError]
"""Makes the error to raise for a server with another digest function than the workspace."""


def open_remote(
    configuration: RemoteConfiguration, function: DigestFunction, *, map_error: ErrorMapper | None = None
) -> RemoteStore | None:
    """The remote cache. None if the configuration says to neither read nor write."""
    if not configuration.is_used:
        return None
    from mlcbuild.cache.remote.remote_store import RemoteStore

    signatures = open_signatures(configuration)
    return RemoteStore(
        open_transports(configuration, function, map_error=map_error),
        configuration.policy,
        check=signatures.check,
        check_first=check_of_first(configuration, signatures),
        sign=signatures.sign,
    )


def open_transports(
    configuration: RemoteConfiguration, function: DigestFunction, *, map_error: ErrorMapper | None = None
) -> tuple[Transport, ...]:
    """The servers to read from, in order. The first one is also written."""
    places = [configuration.in_namespace(), configuration] if configuration.namespace else [configuration]
    return tuple(_opened(place, function, map_error or _as_workspace_error) for place in places)


def open_signatures(configuration: RemoteConfiguration) -> Signatures:
    """Signs if the configuration uploads and has a signing key; verifies if it has trusted keys."""
    return Signatures(
        signing_key=configuration.signing_key if configuration.policy.sends else None,
        trusted_keys=configuration.trusted_keys,
        salt=configuration.salt,
    )


def check_of_first(configuration: RemoteConfiguration, signatures: Signatures) -> Check:
    """The check of results from the first server, where unsigned results may be accepted."""
    if not (configuration.namespace and configuration.unsigned_in_namespace):
        return signatures.check

    def check(key: Digest, result: ActionResult) -> str:
        reason = signatures.check(key, result)
        return "" if reason == UNSIGNED else reason

    return check


def _opened(configuration: RemoteConfiguration, function: DigestFunction, map_error: ErrorMapper) -> Transport:
    kind = _LazyBatchingTransport if configuration.scheme in ("grpc", "grpcs") else _LazyTransport
    return kind(configuration, function, map_error)


def _as_workspace_error(error: DigestFunctionError) -> MlcbuildError:
    return WorkspaceError(error.message, advice=error.advice)


def _connect(configuration: RemoteConfiguration, function: DigestFunction) -> Transport:
    if configuration.scheme == "s3":
        from mlcbuild.cache.remote.s3.transport import S3Transport

        return S3Transport(configuration.s3_settings(), function)
    if configuration.scheme in ("http", "https"):
        from mlcbuild.cache.remote import http

        return http.connect(configuration.address, function, configuration.server)
    from mlcbuild.cache.remote import grpc

    return grpc.connect(configuration.address, function, configuration.server)


class _LazyTransport:
    """A Transport that connects at its first use, and names results by key and salt."""

    def __init__(self, configuration: RemoteConfiguration, function: DigestFunction, map_error: ErrorMapper) -> None:
        self._configuration = configuration
        self._function = function
        self._map_error = map_error
        self._lock = threading.Lock()
        self._transport: Transport | None = None
        self._attempts = 0
        self._failure: TransportError | None = None  # of the last attempt

    @property
    def address(self) -> str:
        return self._configuration.shown

    @property
    def function(self) -> DigestFunction:
        return self._function

    def missing(self, digests: Sequence[Digest]) -> tuple[Digest, ...]:
        return self._connected().missing(digests)

    def download(self, digest: Digest, sink: Sink) -> bool:
        return self._connected().download(digest, sink)

    def upload(self, digest: Digest, path: Path, *, replace: bool = False, on_sent: OnSent = ignore_progress) -> bool:
        return self._connected().upload(digest, path, replace=replace, on_sent=on_sent)

    def read_result(self, key: Digest) -> bytes | None:
        return self._connected().read_result(self._salted(key))

    def write_result(self, key: Digest, data: bytes, *, replace: bool = False) -> bool:
        return self._connected().write_result(self._salted(key), data, replace=replace)

    def close(self) -> None:
        with self._lock:
            transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def _connected(self) -> Transport:
        """Threads that wait during a failed attempt get its error, instead of each trying again."""
        attempts = self._attempts
        with self._lock:
            if self._transport is None:
                if self._failure is not None and self._attempts != attempts:
                    raise self._failure
                self._attempts += 1
                try:
                    self._transport = _connect(self._configuration, self._function)
                except DigestFunctionError as error:
                    raise self._map_error(error) from None
                except TransportError as error:
                    self._failure = error
                    raise
            return self._transport

    def _salted(self, key: Digest) -> Digest:
        salt = self._configuration.salt
        return self._function.of_bytes(f"mlcbuild salt\n{salt}\n{key}".encode()) if salt else key


class _LazyBatchingTransport(_LazyTransport):
    """The same for a server that takes many small blobs in one request."""

    @property
    def batched_bytes(self) -> int:
        """0 if the server cannot be reached; the next request then raises the reason."""
        try:
            return self._batching().batched_bytes
        except TransportError:
            return 0

    def download_many(self, digests: Sequence[Digest]) -> Iterator[tuple[Digest, bytes | None]]:
        return self._batching().download_many(digests)

    def upload_many(self, blobs: Sequence[tuple[Digest, Path]], *, replace: bool = False) -> tuple[Digest, ...]:
        return self._batching().upload_many(blobs, replace=replace)

    def _batching(self) -> BatchingTransport:
        transport = self._connected()
        assert hasattr(transport, "download_many")
        return transport  # type: ignore[return-value]  # The scheme has determined the kind.
