"""Messages of the Remote Execution API v2, as values with exact encodings.

Field numbers are those of `build/bazel/remote/execution/v2/remote_execution.proto`. `encode` writes fields in
tag order without defaults, as the digests of Action, Command and Directory demand; `decode` ignores fields it
does not know and raises ValueError for bytes that are not the message. Lists keep the order they are given
in; those that REAPI wants sorted are checked where the value is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from mlcbuild.cache import wire
from mlcbuild.cache.digest import Digest


def encode_digest(digest: Digest) -> bytes:
    """`Digest {1 hash, 2 size_bytes}`."""
    return b"\x0a\x40" + digest.hash.encode() + wire.integer_field(2, digest.size_bytes)


def decode_digest(data: bytes) -> Digest:
    """Raises ValueError for a hash that is not 64 lower-case hexadecimal digits or a negative size."""
    fields = wire.parse(data)
    return Digest(wire.one_text(fields, 1), wire.one_integer(fields, 2))


def _optional_digest(fields: wire.Fields, number: int) -> Digest | None:
    data = wire.one_bytes(fields, number)
    return None if data is None else decode_digest(data)


def _required_digest(fields: wire.Fields, number: int, message: str) -> Digest:
    digest = _optional_digest(fields, number)
    if digest is None:
        raise ValueError(f"{message} without the digest in field {number}")
    return digest


def _digest_field(number: int, digest: Digest | None) -> bytes:
    return b"" if digest is None else wire.bytes_field(number, encode_digest(digest))


def _check_ascending(what: str, names: Iterable[str]) -> None:
    previous: str | None = None
    for name in names:
        if previous is not None and name <= previous:
            raise ValueError(f"{what} are not sorted and unique: {name!r} after {previous!r}")
        previous = name


def check_name(name: str) -> None:
    """Raises ValueError for what cannot be one path segment, so that no tree can lead outside itself."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"not a file name: {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """`Platform {1 properties {1 name, 2 value}}`, sorted by name, then value."""

    properties: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if list(self.properties) != sorted(self.properties):
            raise ValueError(f"platform properties are not sorted: {self.properties!r}")

    def encode(self) -> bytes:
        return b"".join(
            wire.bytes_field(1, wire.text_field(1, name) + wire.text_field(2, value)) for name, value in self.properties
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        return cls(properties=_pairs(wire.parse(data), 1))


def _pairs(fields: wire.Fields, number: int) -> tuple[tuple[str, str], ...]:
    parsed = [wire.parse(item) for item in wire.all_bytes(fields, number)]
    return tuple((wire.one_text(item, 1), wire.one_text(item, 2)) for item in parsed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`Command {1 arguments, 2 environment_variables, 6 working_directory, 7 output_paths}`.

    `environment` is sorted by name, `output_paths` sorted and unique, without a slash at either end.
    """

    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    working_directory: str = ""
    output_paths: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_ascending("environment variables", (name for name, _ in self.environment))
        _check_ascending("output paths", self.output_paths)
        for path in self.output_paths:
            if path.startswith("/") or path.endswith("/"):
                raise ValueError(f"an output path with a slash at its end: {path!r}")

    def encode(self) -> bytes:
        return b"".join(
            [
                *(wire.bytes_field(1, argument.encode()) for argument in self.arguments),
                *(
                    wire.bytes_field(2, wire.text_field(1, name) + wire.text_field(2, value))
                    for name, value in self.environment
                ),
                wire.text_field(6, self.working_directory),
                *(wire.bytes_field(7, path.encode()) for path in self.output_paths),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(
            arguments=tuple(item.decode() for item in wire.all_bytes(fields, 1)),
            environment=_pairs(fields, 2),
            working_directory=wire.one_text(fields, 6),
            output_paths=tuple(item.decode() for item in wire.all_bytes(fields, 7)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """`Action {1 command_digest, 2 input_root_digest, 6 timeout, 7 do_not_cache, 9 salt, 10 platform}`.

    The digest of its encoding is the key of the action cache. `timeout_seconds` is part of it; 0 means none.
    """

    command_digest: Digest
    input_root_digest: Digest
    timeout_seconds: int = 0
    do_not_cache: bool = False
    salt: bytes = b""
    platform: Platform | None = None

    def encode(self) -> bytes:
        return b"".join(
            [
                _digest_field(1, self.command_digest),
                _digest_field(2, self.input_root_digest),
                wire.bytes_field(6, wire.integer_field(1, self.timeout_seconds)) if self.timeout_seconds else b"",
                wire.integer_field(7, self.do_not_cache),
                wire.bytes_field(9, self.salt) if self.salt else b"",
                b"" if self.platform is None else wire.bytes_field(10, self.platform.encode()),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises ValueError for a timeout with a fraction of a second too: nothing of ours writes one."""
        fields = wire.parse(data)
        timeout = wire.parse(wire.one_bytes(fields, 6) or b"")
        if wire.one_integer(timeout, 2):
            raise ValueError("an Action whose timeout is not in whole seconds")
        platform = wire.one_bytes(fields, 10)
        return cls(
            command_digest=_required_digest(fields, 1, "an Action"),
            input_root_digest=_required_digest(fields, 2, "an Action"),
            timeout_seconds=wire.one_integer(timeout, 1),
            do_not_cache=wire.one_flag(fields, 7),
            salt=wire.one_bytes(fields, 9) or b"",
            platform=None if platform is None else Platform.decode(platform),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileNode:
    """`FileNode {1 name, 2 digest, 4 is_executable}`."""

    name: str
    digest: Digest
    is_executable: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)

    def encode(self) -> bytes:
        return b"".join(
            [
                wire.text_field(1, self.name),
                _digest_field(2, self.digest),
                wire.integer_field(4, self.is_executable),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(
            name=wire.one_text(fields, 1),
            digest=_required_digest(fields, 2, "a FileNode"),
            is_executable=wire.one_flag(fields, 4),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryNode:
    """`DirectoryNode {1 name, 2 digest}`; the digest is that of an encoded Directory."""

    name: str
    digest: Digest

    def __post_init__(self) -> None:
        check_name(self.name)

    def encode(self) -> bytes:
        return wire.text_field(1, self.name) + _digest_field(2, self.digest)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(name=wire.one_text(fields, 1), digest=_required_digest(fields, 2, "a DirectoryNode"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SymlinkNode:
    """`SymlinkNode {1 name, 2 target}`."""

    name: str
    target: str

    def __post_init__(self) -> None:
        check_name(self.name)

    def encode(self) -> bytes:
        return wire.text_field(1, self.name) + wire.text_field(2, self.target)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(name=wire.one_text(fields, 1), target=wire.one_text(fields, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """`Directory {1 files, 2 directories, 3 symlinks}`, each sorted by name; no name appears twice."""

    files: tuple[FileNode, ...] = ()
    directories: tuple[DirectoryNode, ...] = ()
    symlinks: tuple[SymlinkNode, ...] = ()

    def __post_init__(self) -> None:
        _check_ascending("files of a directory", (node.name for node in self.files))
        _check_ascending("directories of a directory", (node.name for node in self.directories))
        _check_ascending("symbolic links of a directory", (node.name for node in self.symlinks))
        names = [node.name for nodes in (self.files, self.directories, self.symlinks) for node in nodes]
        if len(set(names)) != len(names):
            raise ValueError(f"a name appears twice in a directory: {names!r}")

    def encode(self) -> bytes:
        return b"".join(
            [
                *(wire.bytes_field(1, node.encode()) for node in self.files),
                *(wire.bytes_field(2, node.encode()) for node in self.directories),
                *(wire.bytes_field(3, node.encode()) for node in self.symlinks),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(
            files=tuple(FileNode.decode(item) for item in wire.all_bytes(fields, 1)),
            directories=tuple(DirectoryNode.decode(item) for item in wire.all_bytes(fields, 2)),
            symlinks=tuple(SymlinkNode.decode(item) for item in wire.all_bytes(fields, 3)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """`Tree {1 root, 2 children}`: a whole output directory in one message."""

    root: Directory
    children: tuple[Directory, ...] = ()

    def encode(self) -> bytes:
        return b"".join(
            [
                wire.bytes_field(1, self.root.encode()),
                *(wire.bytes_field(2, child.encode()) for child in self.children),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(
            root=Directory.decode(wire.one_bytes(fields, 1) or b""),
            children=tuple(Directory.decode(item) for item in wire.all_bytes(fields, 2)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """`OutputFile {1 path, 2 digest, 4 is_executable, 5 contents}`; `contents` are the inlined bytes or
    empty.
    """

    path: str
    digest: Digest
    is_executable: bool = False
    contents: bytes = b""

    def __post_init__(self) -> None:
        if self.contents and len(self.contents) != self.digest.size_bytes:
            raise ValueError(f"{self.path}: {len(self.contents)} bytes inlined, its digest says {self.digest}")

    def encode(self) -> bytes:
        return b"".join(
            [
                wire.text_field(1, self.path),
                _digest_field(2, self.digest),
                wire.integer_field(4, self.is_executable),
                wire.bytes_field(5, self.contents) if self.contents else b"",
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(
            path=wire.one_text(fields, 1),
            digest=_required_digest(fields, 2, "an OutputFile"),
            is_executable=wire.one_flag(fields, 4),
            contents=wire.one_bytes(fields, 5) or b"",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputDirectory:
    """`OutputDirectory {1 path, 3 tree_digest, 4 is_topologically_sorted}`."""

    path: str
    tree_digest: Digest
    is_topologically_sorted: bool = False

    def encode(self) -> bytes:
        return b"".join(
            [
                wire.text_field(1, self.path),
                _digest_field(3, self.tree_digest),
                wire.integer_field(4, self.is_topologically_sorted),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(
            path=wire.one_text(fields, 1),
            tree_digest=_required_digest(fields, 3, "an OutputDirectory"),
            is_topologically_sorted=wire.one_flag(fields, 4),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSymlink:
    """`OutputSymlink {1 path, 2 target}`."""

    path: str
    target: str

    def encode(self) -> bytes:
        return wire.text_field(1, self.path) + wire.text_field(2, self.target)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(path=wire.one_text(fields, 1), target=wire.one_text(fields, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyMessage:
    """`google.protobuf.Any {1 type_url, 2 value}`."""

    type_url: str
    value: bytes

    def encode(self) -> bytes:
        return wire.text_field(1, self.type_url) + (wire.bytes_field(2, self.value) if self.value else b"")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(type_url=wire.one_text(fields, 1), value=wire.one_bytes(fields, 2) or b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedActionMetadata:
    """`ExecutedActionMetadata {1 worker, 11 auxiliary_metadata}`.

    Its timestamps are neither read nor written, so that the same work gives the same bytes.
    """

    worker: str = ""
    auxiliary_metadata: tuple[AnyMessage, ...] = ()

    def encode(self) -> bytes:
        return b"".join(
            [
                wire.text_field(1, self.worker),
                *(wire.bytes_field(11, item.encode()) for item in self.auxiliary_metadata),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(
            worker=wire.one_text(fields, 1),
            auxiliary_metadata=tuple(AnyMessage.decode(item) for item in wire.all_bytes(fields, 11)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """What an action came to: the value of the action cache.

    `ActionResult {2 output_files, 3 output_directories, 4 exit_code, 5 stdout_raw, 6 stdout_digest, 7
    stderr_raw, 8 stderr_digest, 9 execution_metadata, 12 output_symlinks}`. REAPI advises to name a worker
    always, so that no result is zero bytes.
    """

    output_files: tuple[OutputFile, ...] = ()
    output_directories: tuple[OutputDirectory, ...] = ()
    output_symlinks: tuple[OutputSymlink, ...] = ()
    exit_code: int = 0
    stdout_raw: bytes = b""
    stdout_digest: Digest | None = None
    stderr_raw: bytes = b""
    stderr_digest: Digest | None = None
    execution_metadata: ExecutedActionMetadata | None = None

    def __post_init__(self) -> None:
        if not -(1 << 31) <= self.exit_code < 1 << 31:
            raise ValueError(f"not a 32-bit exit code: {self.exit_code}")

    def encode(self) -> bytes:
        metadata = self.execution_metadata
        return b"".join(
            [
                *(wire.bytes_field(2, item.encode()) for item in self.output_files),
                *(wire.bytes_field(3, item.encode()) for item in self.output_directories),
                wire.integer_field(4, self.exit_code),
                wire.bytes_field(5, self.stdout_raw) if self.stdout_raw else b"",
                _digest_field(6, self.stdout_digest),
                wire.bytes_field(7, self.stderr_raw) if self.stderr_raw else b"",
                _digest_field(8, self.stderr_digest),
                b"" if metadata is None else wire.bytes_field(9, metadata.encode()),
                *(wire.bytes_field(12, item.encode()) for item in self.output_symlinks),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        metadata = wire.one_bytes(fields, 9)
        return cls(
            output_files=tuple(OutputFile.decode(item) for item in wire.all_bytes(fields, 2)),
            output_directories=tuple(OutputDirectory.decode(item) for item in wire.all_bytes(fields, 3)),
            output_symlinks=tuple(OutputSymlink.decode(item) for item in wire.all_bytes(fields, 12)),
            exit_code=wire.one_integer(fields, 4),
            stdout_raw=wire.one_bytes(fields, 5) or b"",
            stdout_digest=_optional_digest(fields, 6),
            stderr_raw=wire.one_bytes(fields, 7) or b"",
            stderr_digest=_optional_digest(fields, 8),
            execution_metadata=None if metadata is None else ExecutedActionMetadata.decode(metadata),
        )
