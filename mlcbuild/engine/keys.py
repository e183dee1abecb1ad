"""Action keys: the digest of a REAPI Action, made from what an action declares and the content of its inputs.

How an action is expressed in REAPI:

- Command.arguments: a tool's own; for a stage `("mlcbuild-stage", function, canonical JSON of arguments)`.
- Command.environment_variables and output_paths: as declared, sorted; directories without their `/`.
- Action.input_root_digest: the Merkle tree of the input files. A file of a non-reproducible action has a digest of that
  action's key there, not that of its bytes.
- An action with pinned content has the arguments `("mlcbuild-pinned", SHA-256)` and no platform, because it does not
  matter who makes these bytes, and how.
- Action.platform: `toolchain:<name>` and `implementation`, each with a fingerprint.
- Action.salt: canonical JSON of the key schema's version, the mnemonic, whether a stage or a tool is called, which
  outputs are directories, and the salt.

Identifier, owner, description, requirements, cache policy, discoverer, timeout and whether it is a test are not part of
the key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from mlcbuild.cache import reapi
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.merkle import TreeFile, input_root
from mlcbuild.cache.store import ActionCache, BlobMissingError, BlobStore
from mlcbuild.engine.action import Action, JsonValue, StageCall, ToolCall
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.large_folders import SplitInputs

# Raise this in the commit that changes what goes into a key, or how.
SCHEMA_VERSION = 2
STAGE_PROGRAM = "mlcbuild-stage"
PINNED_PROGRAM = "mlcbuild-pinned"
BREAKDOWN_TYPE_URL = "type.mlcbuild.dev/KeyBreakdown"
CODE_TYPE_URL = "type.mlcbuild.dev/CodeListing"
_MAXIMUM_SHORT_VALUE = 200


class Component(NamedTuple):
    """A named part of a key, for `explain`. `value` is a digest, or the value itself where it is short."""

    name: str
    value: str


@dataclass(frozen=True, kw_only=True)
class ActionKey:
    """A key, and all that it was made from. `digest` is that of the encoded Action, and the key of the action cache."""

    digest: Digest
    action: bytes
    command: bytes
    directories: tuple[tuple[Digest, bytes], ...]
    source: KeySource
    code: bytes = b""  # the listing of the stage's code, which explains the implementation's digest; b"" for a tool

    @cached_property
    def breakdown(self) -> tuple[Component, ...]:
        """The components of the key, sorted by name. Computed on demand, because most keys are never explained."""
        return components_of(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """What a key is a function of."""

    action: Action
    inputs: tuple[FileEntry, ...]
    toolchains: tuple[tuple[str, str], ...]
    implementation: str
    function: DigestFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """A key as read back from a store."""

    action: reapi.Action
    command: reapi.Command
    breakdown: tuple[Component, ...]
    code: Digest | None = None  # of the listing of the stage's code, which may have gone


def canonical_json(value: JsonValue) -> str:
    """The canonical text of a JSON value: sorted keys, no spaces, ASCII; sequences as arrays, mappings as objects.

    `1`, `1.0` and `true` have different texts. Raises ValueError for a float that is not finite, a key that is not
    text, and a value that JSON does not have.
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _plain(value: object) -> object:
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]  # `kind` tells that it is a float.
            raise ValueError(f"a parameter must be finite: {value!r}")
        return value
    if isinstance(value, Mapping):
        for key in value:
            if type(key) is not str:
                raise ValueError(f"a parameter's key must be text: {key!r}")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview)):
        return [_plain(item) for item in value]
    raise ValueError(f"not a JSON value: {value!r}")


def compute_key(
    action: Action,
    inputs: tuple[FileEntry, ...],
    *,
    toolchains: Mapping[str, str],
    implementation: str,
    function: DigestFunction,
    split: SplitInputs | None = None,
) -> ActionKey:
    """The key of an action whose inputs are resolved to files, of which `split` may know large folders.

    `toolchains` has a hexadecimal fingerprint for every name in `action.toolchains`, and perhaps others.
    `implementation` is the digest of the stage's code, "" for a tool (which is an input). Raises ValueError for a
    missing fingerprint, for inputs that cannot lie in one directory, for a name given twice, and for parameters without
    a canonical form.
    """
    absent = [name for name in action.toolchains if name not in toolchains]
    if absent:
        raise ValueError(f"{action.identifier}: no fingerprint of the toolchain {absent[0]!r}")
    source = KeySource(
        action=action,
        inputs=inputs,
        toolchains=()
        if action.pinned_content
        else tuple((name, toolchains[name]) for name in sorted(set(action.toolchains))),
        implementation="" if action.pinned_content else implementation,
        function=function,
    )
    others = split.others if split else inputs
    root = input_root(
        [TreeFile(entry.path, entry.in_key, entry.is_executable) for entry in others],
        function,
        folders={folder.place.removesuffix("/"): folder.root for folder in split.folders} if split else {},
    )
    command = reapi.Command(
        arguments=_arguments(action),
        environment=tuple(sorted(action.environment)),
        output_paths=tuple(sorted(path.removesuffix("/") for path in action.outputs)),
    ).encode()
    encoded = reapi.Action(
        command_digest=function.of_bytes(command),
        input_root_digest=root.digest,
        salt=_salt(action).encode(),
        platform=reapi.Platform(properties=_properties(source)),
    ).encode()
    return ActionKey(
        digest=function.of_bytes(encoded),
        action=encoded,
        command=command,
        directories=root.directories,
        source=source,
    )


def _arguments(action: Action) -> tuple[str, ...]:
    if action.pinned_content:
        return (PINNED_PROGRAM, action.pinned_content)
    if isinstance(action.command, ToolCall):
        return action.command.arguments
    call = action.command
    arguments: dict[str, JsonValue] = {
        "inputs": _named(action, call.inputs),
        "groups": _named(action, call.groups),
        "outputs": _named(action, call.outputs),
        "parameters": _named(action, call.parameters),
        "plugins": _named(action, call.plugins),
    }
    return (STAGE_PROGRAM, call.function, canonical_json(arguments))


def _named(action: Action, pairs: Sequence[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    named = dict(pairs)
    if len(named) != len(pairs):
        raise ValueError(f"{action.identifier}: an argument is given twice: {[name for name, _ in pairs]}")
    return named


def _salt(action: Action) -> str:
    return canonical_json(
        {
            "command": "stage" if isinstance(action.command, StageCall) else "tool",
            "directories": sorted(path for path in action.outputs if path.endswith("/")),
            "mnemonic": action.mnemonic,
            "salt": action.salt,
            "schema": SCHEMA_VERSION,
        }
    )


def _properties(source: KeySource) -> tuple[tuple[str, str], ...]:
    properties = [(f"toolchain:{name}", fingerprint) for name, fingerprint in source.toolchains]
    if source.implementation:
        properties.append(("implementation", source.implementation))
    return tuple(sorted(properties))


def components_of(source: KeySource) -> tuple[Component, ...]:
    """The components of the key that is made from `source`, sorted by name."""
    action = source.action
    components = [
        Component("mnemonic", action.mnemonic),
        Component("schema", str(SCHEMA_VERSION)),
        *(Component(f"environment {name}", _short(value, source)) for name, value in action.environment),
        *(
            Component(f"input {entry.path}", f"{entry.in_key}{' executable' if entry.is_executable else ''}")
            for entry in source.inputs
        ),
        *(Component(f"output {path}", "directory" if path.endswith("/") else "file") for path in action.outputs),
        *(Component(f"toolchain {name}", fingerprint) for name, fingerprint in source.toolchains),
    ]
    if action.salt:
        components.append(Component("salt", _short(action.salt, source)))
    if source.implementation:
        components.append(Component("implementation", source.implementation))
    if action.pinned_content:
        components.append(Component("pinned content", action.pinned_content))
    elif isinstance(action.command, StageCall):
        call = action.command
        named = (
            ("argument", call.inputs),
            ("group", call.groups),
            ("result", call.outputs),
            ("plug-in", call.plugins),
        )
        components.append(Component("function", call.function))
        components += [
            Component(f"{kind} {name}", _short(canonical_json(value), source))
            for kind, pairs in named
            for name, value in pairs
        ]
        components += [
            Component(f"parameter {name}", _short(canonical_json(value), source)) for name, value in call.parameters
        ]
    else:
        width = len(str(len(action.command.arguments) - 1))
        components += [
            Component(f"argument {index:0{width}}", _short(value, source))
            for index, value in enumerate(action.command.arguments)
        ]
    return tuple(sorted(components))


def _short(value: str, source: KeySource) -> str:
    if len(value) <= _MAXIMUM_SHORT_VALUE:
        return value
    return str(source.function.of_bytes(value.encode("utf-8", "surrogatepass")))


def publish(store: BlobStore, cache: ActionCache, key: ActionKey, result: reapi.ActionResult) -> reapi.ActionResult:
    """Store Action, Command, Directories, breakdown and the listing of the code, then the result that names them.

    Returns what is published. The caller has stored the outputs. The digests of breakdown and listing go into the
    auxiliary metadata of the result, so that all of it is found by the key. Raises as the store does.
    """
    breakdown = canonical_json([list(component) for component in key.breakdown])
    # A result is usable without these, and a torn one is detected when it is read. So do not wait for the disk.
    for data in (key.action, key.command, *(data for _, data in key.directories)):
        store.put_bytes(data, durable=False)
    references = [
        reapi.AnyMessage(type_url=type_url, value=reapi.encode_digest(store.put_bytes(explanation, durable=False)))
        for type_url, explanation in ((BREAKDOWN_TYPE_URL, breakdown.encode()), (CODE_TYPE_URL, key.code))
        if explanation
    ]
    metadata = result.execution_metadata or reapi.ExecutedActionMetadata()
    ours = (BREAKDOWN_TYPE_URL, CODE_TYPE_URL)
    others = tuple(item for item in metadata.auxiliary_metadata if item.type_url not in ours)
    published = reapi.ActionResult(
        output_files=result.output_files,
        output_directories=result.output_directories,
        output_symlinks=result.output_symlinks,
        exit_code=result.exit_code,
        stdout_raw=result.stdout_raw,
        stdout_digest=result.stdout_digest,
        stderr_raw=result.stderr_raw,
        stderr_digest=result.stderr_digest,
        execution_metadata=reapi.ExecutedActionMetadata(
            worker=metadata.worker, auxiliary_metadata=(*others, *references)
        ),
    )
    cache.put(key.digest, published)
    return published


def read_key(store: BlobStore, cache: ActionCache, digest: Digest) -> StoredKey | None:
    """What `publish` stored with a key; None where the result or a part of this has gone."""
    result = cache.get(digest)
    breakdown = read_breakdown(store, result) if result else None
    if result is None or breakdown is None:
        return None
    references = _references(result)
    try:
        action = reapi.Action.decode(store.read(digest))
        command = reapi.Command.decode(store.read(action.command_digest))
        code = reapi.decode_digest(references[CODE_TYPE_URL]) if CODE_TYPE_URL in references else None
    except (BlobMissingError, ValueError):
        return None
    return StoredKey(action=action, command=command, breakdown=breakdown, code=code)


def read_breakdown(store: BlobStore, result: reapi.ActionResult) -> tuple[Component, ...] | None:
    """The components that `publish` stored with a result, without the rest of its key; None where they have gone."""
    references = _references(result)
    if BREAKDOWN_TYPE_URL not in references:
        return None
    try:
        components = json.loads(store.read(reapi.decode_digest(references[BREAKDOWN_TYPE_URL])))
        return tuple(Component(str(name), str(value)) for name, value in components)
    except (BlobMissingError, ValueError, TypeError):
        return None


def _references(result: reapi.ActionResult) -> dict[str, bytes]:
    """The digests of what explains a key, by type."""
    metadata = result.execution_metadata
    return {item.type_url: item.value for item in metadata.auxiliary_metadata} if metadata else {}
