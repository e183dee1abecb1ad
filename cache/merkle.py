"""Conversion between files by path and Merkle trees of REAPI Directory messages: input roots and output Trees.

Names are sorted by code point, which is the order of their UTF-8 bytes. Unicode is never normalised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mlcbuild.cache import wire
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.reapi import Directory, Tree, check_name, encode_digest

_EXECUTABLE = b"\x20\x01"
# A message of a few kilobytes can describe a tree of 2^50 files by naming equal directories again and again.
_MAXIMUM_NODES = 1_000_000
_MAXIMUM_DEPTH = 200


class FileLike(Protocol):
    """A file with path, content and executable bit, such as the engine's FileEntry."""

    @property
    def path(self) -> str: ...

    @property
    def digest(self) -> Digest: ...

    @property
    def is_executable(self) -> bool: ...


class TreeFile(NamedTuple):
    """The FileLike that `files_of` returns."""

    path: str
    digest: Digest
    is_executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRoot:
    """The digest of a root Directory, and every encoded Directory of the tree, each once, children first."""

    digest: Digest
    directories: tuple[tuple[Digest, bytes], ...]


class _Folder:
    __slots__ = ("files", "folders")

    def __init__(self) -> None:
        self.files: dict[str, FileLike] = {}
        self.folders: dict[str, _Folder | InputRoot] = {}  # an InputRoot is a whole folder, already encoded


def _folders_of(entries: Iterable[FileLike]) -> _Folder:
    root = _Folder()
    by_path: dict[str, _Folder] = {"": root}
    for entry in entries:
        parent, slash, name = entry.path.rpartition("/")
        if slash and not parent:
            raise ValueError(f"not a file name: '' in {entry.path!r}")
        folder = by_path.get(parent) or _make_folder(by_path, parent, entry.path)
        check_name(name)
        if name in folder.files or name in folder.folders:
            raise ValueError(f"two inputs at one path: {entry.path!r}")
        folder.files[name] = entry
    return root


def _make_folder(by_path: dict[str, _Folder], path: str, wanted_by: str) -> _Folder:
    folder = by_path[""]
    reached = ""
    for name in path.split("/"):
        check_name(name)
        if name in folder.files:
            raise ValueError(f"{reached + name!r} is a file, and a directory for {wanted_by!r}")
        inner = folder.folders.setdefault(name, _Folder())
        assert isinstance(inner, _Folder), "whole folders are added last"
        folder = inner
        reached += name
        by_path[reached] = folder
        reached += "/"
    return folder


def _add_folder(root: _Folder, path: str, known: InputRoot) -> None:
    *above, name = path.split("/")
    folder = _make_folder({"": root}, "/".join(above), path) if above else root
    check_name(name)
    if name in folder.files or name in folder.folders:
        raise ValueError(f"two inputs at one path: {path!r}")
    folder.folders[name] = known


def _encode_folder(folder: _Folder, function: DigestFunction, blobs: dict[Digest, bytes]) -> Digest:
    # Files are encoded here rather than by FileNode, because ten thousand of them should cost tens of milliseconds.
    parts: list[bytes] = []
    field = wire.bytes_field
    for name in sorted(folder.files):
        entry = folder.files[name]
        mode = _EXECUTABLE if entry.is_executable else b""
        parts.append(field(1, field(1, name.encode()) + field(2, encode_digest(entry.digest)) + mode))
    for name in sorted(folder.folders):
        inner = folder.folders[name]
        if isinstance(inner, InputRoot):
            digest = inner.digest
            blobs.update(inner.directories)
        else:
            digest = _encode_folder(inner, function, blobs)
        parts.append(field(2, field(1, name.encode()) + field(2, encode_digest(digest))))
    data = b"".join(parts)
    digest = function.of_bytes(data)
    blobs[digest] = data
    return digest


def input_root(
    entries: Iterable[FileLike], function: DigestFunction, *, folders: Mapping[str, InputRoot] | None = None
) -> InputRoot:
    """The Merkle tree of files by relative path, in any order, and of whole `folders`, whose trees are known.

    Raises ValueError for a path that is not below the root, appears twice, or is both a file and a directory.
    """
    blobs: dict[Digest, bytes] = {}
    root = _folders_of(entries)
    for path, known in (folders or {}).items():
        _add_folder(root, path, known)
    digest = _encode_folder(root, function, blobs)
    return InputRoot(digest=digest, directories=tuple(blobs.items()))


def tree_of(entries: Iterable[FileLike], function: DigestFunction) -> Tree:
    """The Tree of an output directory: each distinct Directory once, parents before children.

    That is REAPI's `is_topologically_sorted` form. Paths are relative to the directory. Raises ValueError as
    `input_root` does.
    """
    blobs: dict[Digest, bytes] = {}
    root_digest = _encode_folder(_folders_of(entries), function, blobs)
    # Children are encoded and inserted before their parents. An equal directory keeps its first position, which is
    # before all its parents. So the reverse order is topological.
    children = [data for digest, data in reversed(blobs.items()) if digest != root_digest]
    return Tree(root=Directory.decode(blobs[root_digest]), children=tuple(Directory.decode(data) for data in children))


def files_of(tree: Tree, function: DigestFunction) -> tuple[TreeFile, ...]:
    """The files of a Tree, sorted by path.

    Raises ValueError for a tree that lacks a directory it names, or that contains a symbolic link: mlcbuild never
    writes one, and it could lead outside the tree.
    """
    by_digest = {function.of_bytes(child.encode()): child for child in tree.children}
    files: list[TreeFile] = []
    visited = 0

    def walk(directory: Directory, prefix: str) -> None:
        nonlocal visited
        visited += 1 + len(directory.files)
        if visited > _MAXIMUM_NODES or prefix.count("/") > _MAXIMUM_DEPTH:
            raise ValueError(f"a tree of more than {_MAXIMUM_NODES} nodes or {_MAXIMUM_DEPTH} levels")
        if directory.symlinks:
            raise ValueError(f"a symbolic link in a tree: {prefix + directory.symlinks[0].name!r}")
        files.extend(TreeFile(prefix + node.name, node.digest, node.is_executable) for node in directory.files)
        for node in directory.directories:
            if node.digest not in by_digest:
                raise ValueError(f"a tree without its directory {prefix + node.name!r} ({node.digest})")
            walk(by_digest[node.digest], f"{prefix}{node.name}/")

    walk(tree.root, "")
    return tuple(sorted(files))
