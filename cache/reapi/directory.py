"""Directories and their files: FileNode, DirectoryNode, SymlinkNode, Directory and Tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from mlcbuild.cache import wire
from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi.fields import check_ascending, check_name, digest_field, required_digest


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
                digest_field(2, self.digest),
                wire.integer_field(4, self.is_executable),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(
            name=wire.one_text(fields, 1),
            digest=required_digest(fields, 2, "a FileNode"),
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
        return wire.text_field(1, self.name) + digest_field(2, self.digest)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(name=wire.one_text(fields, 1), digest=required_digest(fields, 2, "a DirectoryNode"))


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
        check_ascending("files of a directory", (node.name for node in self.files))
        check_ascending("directories of a directory", (node.name for node in self.directories))
        check_ascending("symbolic links of a directory", (node.name for node in self.symlinks))
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
