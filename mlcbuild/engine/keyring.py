"""Makes each action's key out of toolchain fingerprints and implementation digests, and keeps it for its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.engine.action import Action, StageCall
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.keys import ActionKey, compute_key


class ToolchainFingerprints(Protocol):
    """`mlcbuild.engine.toolchains.Toolchains` is one."""

    def fingerprint(self, name: str) -> str: ...


class StageCode(Protocol):
    """`mlcbuild.engine.implementation.Implementation` is one."""

    @property
    def digest(self) -> str: ...

    @property
    def modules(self) -> frozenset[str]: ...


class StageImplementations(Protocol):
    """`mlcbuild.engine.implementation.Implementations` is one."""

    def of(self, function: str) -> StageCode: ...


class Keyring:
    """A key function for the scheduler. A key that leads to a hit is dropped; one that leads to a run is taken."""

    def __init__(
        self, *, toolchains: ToolchainFingerprints, implementations: StageImplementations, function: DigestFunction
    ) -> None:
        self._toolchains = toolchains
        self._implementations = implementations
        self._function = function
        self._fingerprints: dict[str, str] = {}
        self._keys: dict[Digest, ActionKey] = {}

    def __call__(self, action: Action, inputs: tuple[FileEntry, ...]) -> Digest:
        """Raises MlcbuildError or ValueError for an action that has no key."""
        key = compute_key(
            action,
            inputs,
            toolchains=self._fingerprints_of(action),
            implementation=self._code_of(action),
            function=self._function,
        )
        self._keys[key.digest] = key
        return key.digest

    def take(self, action: Action, inputs: tuple[FileEntry, ...], digest: Digest) -> ActionKey:
        """The whole key behind a digest, made again where another action of the same key had a hit."""
        if digest not in self._keys:
            self(action, inputs)
        return self._keys.pop(digest)

    def drop(self, digest: Digest) -> None:
        self._keys.pop(digest, None)

    def modules_of(self, action: Action) -> frozenset[str]:
        """Our own modules that a stage may import; empty for a tool."""
        command = action.command
        return self._implementations.of(command.function).modules if isinstance(command, StageCall) else frozenset()

    def _code_of(self, action: Action) -> str:
        command = action.command
        return self._implementations.of(command.function).digest if isinstance(command, StageCall) else ""

    def _fingerprints_of(self, action: Action) -> Mapping[str, str]:
        for name in action.toolchains:
            if name not in self._fingerprints:
                self._fingerprints[name] = self._toolchains.fingerprint(name)
        return self._fingerprints
