"""Parts of REAPI messages: digests, names, and checked lists."""

from __future__ import annotations

from collections.abc import Iterable

from mlcbuild.cache import wire
from mlcbuild.cache.digest import Digest


def encode_digest(digest: Digest) -> bytes:
    """`Digest {1 hash, 2 size_bytes}`."""
    return b"\x0a\x40" + digest.hash.encode() + wire.integer_field(2, digest.size_bytes)


def decode_digest(data: bytes) -> Digest:
    """Raises ValueError for a hash that is not 64 lower-case hexadecimal digits or a negative size."""
    fields = wire.parse(data)
    return Digest(wire.one_text(fields, 1), wire.one_integer(fields, 2))


def optional_digest(fields: wire.Fields, number: int) -> Digest | None:
    data = wire.one_bytes(fields, number)
    return None if data is None else decode_digest(data)


def required_digest(fields: wire.Fields, number: int, message: str) -> Digest:
    digest = optional_digest(fields, number)
    if digest is None:
        raise ValueError(f"{message} without the digest in field {number}")
    return digest


def digest_field(number: int, digest: Digest | None) -> bytes:
    return b"" if digest is None else wire.bytes_field(number, encode_digest(digest))


def check_ascending(what: str, names: Iterable[str]) -> None:
    previous: str | None = None
    for name in names:
        if previous is not None and name <= previous:
            raise ValueError(f"{what} are not sorted and unique: {name!r} after {previous!r}")
        previous = name


def check_name(name: str) -> None:
    """Raises ValueError for a name that is not one path segment, so that no tree has paths outside itself."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"not a file name: {name!r}")


def pairs(fields: wire.Fields, number: int) -> tuple[tuple[str, str], ...]:
    parsed = [wire.parse(item) for item in wire.all_bytes(fields, number)]
    return tuple((wire.one_text(item, 1), wire.one_text(item, 2)) for item in parsed)
