"""From a configuration to transports, signatures included: nothing is imported or connected before it is used."""

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

Refuse = Callable[[DigestFunctionError], MlcbuildError]
"""What to raise for a server that names blobs by another function than the workspace: the two never go together."""


def open_remote(
    configuration: RemoteConfiguration, function: DigestFunction, *, refuse: Refuse | None = None
) -> RemoteStore | None:
    """None where nothing is to be read or written."""
    if not configuration.is_used:
        return None
    from mlcbuild.cache.remote.remote_store import RemoteStore

    signatures = open_signatures(configuration)
    return RemoteStore(
        open_transports(configuration, function, refuse=refuse),
        configuration.policy,
        check=signatures.check,
        check_first=check_of_first(configuration, signatures),
        sign=signatures.sign,
    )


def open_transports(
    configuration: RemoteConfiguration, function: DigestFunction, *, refuse: Refuse | None = None
) -> tuple[Transport, ...]:
    """The servers to read from, in order; the first is the one to write to."""
    places = [configuration.in_namespace(), configuration] if configuration.namespace else [configuration]
    return tuple(_opened(place, function, refuse or _refused) for place in places)


def open_signatures(configuration: RemoteConfiguration) -> Signatures:
    """Signs where the configuration sends and has a key, and checks where it names keys."""
    return Signatures(
        signing_key=configuration.signing_key if configuration.policy.sends else None,
        trusted_keys=configuration.trusted_keys,
        salt=configuration.salt,
    )


def check_of_first(configuration: RemoteConfiguration, signatures: Signatures) -> Check:
    """Why a result of the place that is written is not believed: as elsewhere, but unsigned ones may be."""
    if not (configuration.namespace and configuration.unsigned_in_namespace):
        return signatures.check

    def check(key: Digest, result: ActionResult) -> str:
        reason = signatures.check(key, result)
        return "" if reason == UNSIGNED else reason

    return check


def _opened(configuration: RemoteConfiguration, function: DigestFunction, refuse: Refuse) -> Transport:
    kind = _LateBatching if configuration.scheme in ("grpc", "grpcs") else _Late
    return kind(configuration, function, refuse)


def _refused(error: DigestFunctionError) -> MlcbuildError:
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


class _Late:
    """A Transport that connects when it is first asked for something, and names results by key and salt."""

    def __init__(self, configuration: RemoteConfiguration, function: DigestFunction, refuse: Refuse) -> None:
        self._configuration = configuration
        self._function = function
        self._refuse = refuse
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
        """Who waits while somebody else tries in vain gets the same answer, rather than the next long wait."""
        attempts = self._attempts
        with self._lock:
            if self._transport is None:
                if self._failure is not None and self._attempts != attempts:
                    raise self._failure
                self._attempts += 1
                try:
                    self._transport = _connect(self._configuration, self._function)
                except DigestFunctionError as error:
                    raise self._refuse(error) from None
                except TransportError as error:
                    self._failure = error
                    raise
            return self._transport

    def _salted(self, key: Digest) -> Digest:
        salt = self._configuration.salt
        return self._function.of_bytes(f"mlcbuild salt\n{salt}\n{key}".encode()) if salt else key


class _LateBatching(_Late):
    """The same for a kind of server that takes many small blobs in one request."""

    @property
    def batched_bytes(self) -> int:
        """0 where the server cannot be reached: whatever is asked of it then says why."""
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
        return transport  # type: ignore[return-value]  # Which kind it is, the scheme has told.
