"""Which blobs a result names, read from the bytes of REAPI messages without decoding them into values.

This takes seconds for a store of 100,000 blobs. `mlcbuild.cache.reapi` has the messages as values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mlcbuild.cache import wire

_DIGEST_START = b"\x0a\x40"  # field 1, 64 bytes: the hash of a Digest
_DIGEST_HASH_END = 66

Read = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The hashes that a result names, each once.

    `outputs` are files, also those inside Trees. `trees` are output directories, `log` is standard output and error.
    `key` describes the action (Action, Command, Directories, breakdown); a result can be used without it.
    """

    outputs: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    key: tuple[str, ...] = ()

    def all(self) -> set[str]:
        return {*self.outputs, *self.trees, *self.log, *self.key}

    def needed(self) -> set[str]:
        """The blobs without which the result cannot be used."""
        return {*self.outputs, *self.trees}


class ReferenceReader:
    """Finds what results name in one store. `read` returns a blob's bytes, or None if it cannot."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._files_of_trees: dict[str, tuple[str, ...]] = {}
        self._children: dict[str, tuple[str, ...]] = {}

    def of_result(self, key_hash: str, body: bytes) -> References:
        """`body` is an encoded ActionResult under the key of that hash. Raises ValueError where it is none.

        Blobs that are absent or cannot be parsed are skipped, and so is what they would name.
        """
        fields = wire.parse(body)
        outputs = [_digest(item, 2) for item in wire.all_bytes(fields, 2)]
        trees = [_digest(item, 3) for item in wire.all_bytes(fields, 3)]
        for tree in trees:
            outputs += self._files_of_tree(tree)
        log = [_hash(item) for number in (6, 8) for item in wire.all_bytes(fields, number)]
        return References(
            outputs=tuple(dict.fromkeys(outputs)),
            trees=tuple(dict.fromkeys(trees)),
            log=tuple(dict.fromkeys(log)),
            key=tuple(dict.fromkeys(self._of_key(key_hash, wire.one_bytes(fields, 9)))),
        )

    def _files_of_tree(self, tree: str) -> tuple[str, ...]:
        known = self._files_of_trees.get(tree)
        if known is None:
            try:
                fields = wire.parse(self._read(tree) or b"")
                directories = [*wire.all_bytes(fields, 1), *wire.all_bytes(fields, 2)]
                found = [_digest(item, 2) for data in directories for item in wire.all_bytes(wire.parse(data), 1)]
            except ValueError:
                found = []
            known = self._files_of_trees[tree] = tuple(dict.fromkeys(found))
        return known

    def _of_key(self, key_hash: str, metadata: bytes | None) -> Iterable[str]:
        yield key_hash
        if metadata is not None:
            for item in wire.all_bytes(wire.parse(metadata), 11):
                value = wire.one_bytes(wire.parse(item), 2) or b""
                if value[:2] == _DIGEST_START:
                    yield _hash(value)
        try:
            fields = wire.parse(self._read(key_hash) or b"")
            yield from (_hash(item) for item in wire.all_bytes(fields, 1))
            waiting = [_hash(item) for item in wire.all_bytes(fields, 2)]
        except ValueError:
            return
        seen = set(waiting)
        while waiting:
            directory = waiting.pop()
            yield directory
            new = [child for child in self._children_of(directory) if child not in seen]
            seen.update(new)
            waiting += new

    def _children_of(self, directory: str) -> tuple[str, ...]:
        known = self._children.get(directory)
        if known is None:
            try:
                fields = wire.parse(self._read(directory) or b"")
                known = tuple(_digest(item, 2) for item in wire.all_bytes(fields, 2))
            except ValueError:
                known = ()
            self._children[directory] = known
        return known


def _digest(message: bytes, number: int) -> str:
    """The hash of the Digest in a field of a message."""
    data = wire.one_bytes(wire.parse(message), number)
    if data is None:
        raise ValueError(f"a message without the digest in field {number}")
    return _hash(data)


def _hash(digest: bytes) -> str:
    if digest[:2] != _DIGEST_START or len(digest) < _DIGEST_HASH_END:
        raise ValueError(f"not a digest of 64 hexadecimal digits: {digest[:_DIGEST_HASH_END]!r}")
    return digest[2:_DIGEST_HASH_END].decode("ascii")
