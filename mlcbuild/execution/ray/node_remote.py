"""The remote cache of a build as a node uses it: the build sends the address, the node has its own credentials.

Addresses are sent without user names and passwords. Headers, keys and certificates are never sent. A node finds AWS
credentials and `~/.netrc` as every program does, and headers in its variable `MLCBUILD_REMOTE_HEADERS`.
"""

from __future__ import annotations

import dataclasses
import os
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.remote.configuration import RemoteConfiguration, S3Options
from mlcbuild.cache.remote.policy import RemotePolicy, RemoteRole
from mlcbuild.cache.remote.s3.layout import Layout
from mlcbuild.cache.remote.s3.settings import Addressing, Checksums
from mlcbuild.cache.remote.settings import ServerSettings
from mlcbuild.errors import MlcbuildError

if TYPE_CHECKING:
    from mlcbuild.cache.remote.remote_store import RemoteStore

HEADERS_VARIABLE = "MLCBUILD_REMOTE_HEADERS"


def remote_to_json(configuration: RemoteConfiguration | None) -> dict[str, Any] | None:
    """What a node may know of it; None if the build has no remote."""
    if configuration is None or not configuration.is_used:
        return None
    s3 = {field.name: getattr(configuration.s3, field.name) for field in dataclasses.fields(S3Options)}
    s3 = {name: value if isinstance(value, str) else value.value for name, value in s3.items()}
    del s3["profile"]  # It names credentials on one machine.
    return {
        "address": _without_credentials(configuration.address),
        "namespace": configuration.namespace,
        "sends": configuration.policy.sends,
        "s3": s3,
    }


def remote_from_json(value: Mapping[str, Any], environment: Mapping[str, str]) -> RemoteConfiguration:
    """Raises ValueError."""
    s3 = dict(value["s3"])
    headers = []
    for line in filter(None, map(str.strip, environment.get(HEADERS_VARIABLE, "").splitlines())):
        name, _, text = line.partition(":")
        headers.append((name.strip(), text.strip()))
    return RemoteConfiguration(
        address=value["address"],
        namespace=value["namespace"],
        policy=RemotePolicy(role=RemoteRole.READ_WRITE if value["sends"] else RemoteRole.READ),
        server=ServerSettings(headers=tuple(headers)),
        s3=S3Options(
            endpoint=s3["endpoint"],
            region=s3["region"],
            addressing=Addressing(s3["addressing"]),
            layout=Layout(s3["layout"]),
            checksums=Checksums(s3["checksums"]),
        ),
    )


def _without_credentials(address: str) -> str:
    parts = urllib.parse.urlsplit(address)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


class NodeRemote:
    """Fetches and sends blobs. What fails here the build transfers in another way."""

    def __init__(self, value: Mapping[str, Any] | None, store: DiskStore) -> None:
        self._store = store
        self._value = value
        self._cache: RemoteStore | None = None
        self._is_open = False
        self._errors: list[str] = []
        self._sent: list[str] = []

    def fetch(self, digests: Sequence[Digest]) -> tuple[Digest, ...]:
        """Bring blobs into the store. Returns those that are still missing."""
        cache = self._opened()
        if cache is None:
            return tuple(digests)
        try:
            return cache.fetch(digests, self._store)
        except MlcbuildError as error:
            self._errors.append(str(error))
            return self._store.missing(digests)

    def send(self, digests: Sequence[Digest]) -> tuple[Digest, ...]:
        """Put blobs into the remote. Returns those that could not be put there."""
        cache = self._opened()
        if cache is None or self._value is None or not self._value["sends"] or not digests:
            return tuple(digests)
        try:
            cache.send_blobs(digests, self._store)
        except MlcbuildError as error:
            self._errors.append(str(error))
            return tuple(digests)
        self._sent += map(str, digests)
        return ()

    def take_sent(self) -> list[str]:
        """The digests of the blobs that were sent since the last call."""
        sent, self._sent = self._sent, []
        return sent

    def take_errors(self) -> list[str]:
        """The errors since the last call."""
        errors, self._errors = self._errors, []
        return errors

    def _opened(self) -> RemoteStore | None:
        if not self._is_open and self._value is not None:
            self._is_open = True
            from mlcbuild.cache.remote.opening import open_remote

            try:
                self._cache = open_remote(remote_from_json(self._value, os.environ), self._store.function)
            except (ValueError, MlcbuildError) as error:
                self._errors.append(str(error))
            if self._cache is not None:
                self._cache.start(self._errors.append)
        return self._cache
