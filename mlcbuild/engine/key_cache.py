"""Computes the keys of actions, uses those of the last build again, and keeps each until its action runs."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Protocol

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.engine.action import Action, StageCall
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.keys import SCHEMA_VERSION, ActionKey, KeySource, compute_key
from mlcbuild.engine.large_folders import LargeFolders, SplitInputs, described
from mlcbuild.engine.last_build import LastBuild


class ToolchainFingerprints(Protocol):
    """`mlcbuild.toolchains.table.Toolchains` is one."""

    def fingerprint(self, name: str) -> str: ...


class StageCode(Protocol):
    """`mlcbuild.engine.implementation.Implementation` is one."""

    @property
    def digest(self) -> str: ...

    @property
    def modules(self) -> frozenset[str]: ...

    @property
    def distributions(self) -> tuple[str, ...]: ...

    @property
    def files(self) -> tuple[str, ...]: ...


class StageImplementations(Protocol):
    """`mlcbuild.engine.implementation.Implementations` is one."""

    def of(self, *modules: str) -> StageCode: ...

    def listing(self, *modules: str) -> bytes: ...

    def changed(self, *modules: str) -> str: ...


# Fields that are not in the key, and inputs, which are in it as the files that they resolve to.
_NOT_IN_KEY = (
    *("identifier", "owner", "inputs", "cache", "requirements", "manifest", "discoverer", "is_test", "description"),
)
_definition_of = attrgetter(*(field.name for field in fields(Action) if field.name not in (*_NOT_IN_KEY, "command")))
_stage_of = attrgetter(*(field.name for field in fields(StageCall)))
_MARSHAL_VERSION = 2  # later versions write equal values differently


class KeyCache:
    """A key function for the scheduler.

    A key of the last build is used again where all that it was made from is the same. A signature tells, which is much
    cheaper than the key. Call `drop` for a key that led to a cache hit, `take` for one that leads to a run.
    """

    def __init__(
        self,
        *,
        toolchains: ToolchainFingerprints,
        implementations: StageImplementations,
        function: DigestFunction,
        last_build: LastBuild,
    ) -> None:
        self._toolchains = toolchains
        self._implementations = implementations
        self._function = function
        self._last_build = last_build
        self._folders = LargeFolders(function)
        self._fingerprints: dict[str, str] = {}
        self._keys: dict[Digest, ActionKey] = {}
        self._signatures: dict[str, str] = {}

    def __call__(self, action: Action, inputs: tuple[FileEntry, ...]) -> Digest:
        """The key of an action. Raises MlcbuildError or ValueError for an action that has none."""
        split = self._folders.split(action, inputs)
        signature = self._signature(action, split)
        known = self._last_build.key_for(action.identifier, signature) if signature else None
        if known is not None:
            self._signatures.pop(action.identifier, None)
            return known
        key = self._compute(action, inputs, split)
        self._signatures[action.identifier] = signature
        return key.digest

    def new_signature(self, identifier: str) -> str:
        """The signature to remember a new key by; "" where the last build's key is valid, or there is no signature."""
        return self._signatures.get(identifier, "")

    def _compute(self, action: Action, inputs: tuple[FileEntry, ...], split: SplitInputs) -> ActionKey:
        key = compute_key(
            action,
            inputs,
            toolchains=self._fingerprints_of(action),
            implementation=self._code_of(action),
            function=self._function,
            split=split,
        )
        self._keys[key.digest] = key
        return key

    def _signature(self, action: Action, split: SplitInputs) -> str:
        """SHA-256 over all that the key depends on, in Python's own encoding; "" where that cannot encode it."""
        command = action.command
        if isinstance(command, StageCall):
            call: tuple[object, ...] = ("stage", self._code_of(action), *_stage_of(command))
        else:
            call = ("tool", command.arguments)
        fingerprints = self._fingerprints_of(action)
        everything: Any = (
            SCHEMA_VERSION,
            self._function.value,
            _definition_of(action),
            call,
            [fingerprints[name] for name in action.toolchains],
            described(split.others),
            [(folder.place, folder.signature) for folder in split.folders],
        )
        try:
            return hashlib.sha256(marshal.dumps(everything, _MARSHAL_VERSION)).hexdigest()
        except ValueError:
            return ""

    def take(self, action: Action, inputs: tuple[FileEntry, ...], digest: Digest) -> ActionKey:
        """The whole key of a digest. It is computed again where another action of that key had a cache hit."""
        if digest not in self._keys:
            self._compute(action, inputs, self._folders.split(action, inputs))
        return replace(self._keys.pop(digest), code=self.listing_of(action))

    def drop(self, digest: Digest) -> None:
        self._keys.pop(digest, None)

    def source_of(self, action: Action, inputs: tuple[FileEntry, ...]) -> KeySource:
        """What the key of an action is made from. Raises as the key does."""
        fingerprints = self._fingerprints_of(action)
        return KeySource(
            action=action,
            inputs=inputs,
            toolchains=()
            if action.pinned_content
            else tuple((name, fingerprints[name]) for name in sorted(set(action.toolchains))),
            implementation="" if action.pinned_content else self._code_of(action),
            function=self._function,
        )

    def listing_of(self, action: Action) -> bytes:
        """The listing of a stage's code (`engine.code_listing`); b"" for a tool."""
        command = action.command
        if not isinstance(command, StageCall) or action.pinned_content:
            return b""
        return self._implementations.listing(*command.modules)

    def modules_of(self, action: Action) -> frozenset[str]:
        """The modules of mlcbuild and the workspace that a stage may import; empty for a tool."""
        command = action.command
        return self._implementations.of(*command.modules).modules if isinstance(command, StageCall) else frozenset()

    def distributions_of(self, action: Action) -> tuple[str, ...]:
        """The installed distributions that a stage's code imports, by their normalized names; none for a tool."""
        command = action.command
        return self._implementations.of(*command.modules).distributions if isinstance(command, StageCall) else ()

    def files_of(self, action: Action) -> tuple[str, ...]:
        """The workspace's files that a stage's code consists of, by their paths from its root; none for a tool."""
        command = action.command
        return self._implementations.of(*command.modules).files if isinstance(command, StageCall) else ()

    def change_in_code(self, action: Action) -> str:
        """What to tell people where the code of a stage changed while it ran; "" where it did not, and for a tool."""
        command = action.command
        if not isinstance(command, StageCall) or action.pinned_content:
            return ""
        changed = self._implementations.changed(*command.modules)
        if not changed:
            return ""
        return f"its code {changed!r} changed during the build; nothing made with it was kept: build again"

    def _code_of(self, action: Action) -> str:
        command = action.command
        return self._implementations.of(*command.modules).digest if isinstance(command, StageCall) else ""

    def _fingerprints_of(self, action: Action) -> Mapping[str, str]:
        for name in action.toolchains:
            if name not in self._fingerprints:
                self._fingerprints[name] = self._toolchains.fingerprint(name)
        return self._fingerprints
