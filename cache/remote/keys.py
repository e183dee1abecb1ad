"""Ed25519 keys (RFC 8032) in PEM files as OpenSSL writes them, or public keys as one line of base64.

::

    openssl genpkey -algorithm ed25519 -out ci.key     the private key: PKCS #8 (RFC 5958)
    openssl pkey -in ci.key -pubout -out ci.pub        the public key: SubjectPublicKeyInfo (RFC 8410)

The line between the markers of `ci.pub` is also accepted as a public key, as it fits into a settings file.
`cryptography` is imported when a key is first used.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from mlcbuild.errors import CacheError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_BYTES = 32
SIGNATURE_BYTES = 64
_PUBLIC_PREFIX = bytes.fromhex("302a300506032b6570032100")  # the DER of SubjectPublicKeyInfo before an Ed25519 key
_PUBLIC_LINE = re.compile(r"MCowBQYDK2VwAyEA[A-Za-z0-9+/]{43}=")  # the same in base64
_PUBLIC_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----\s+(\S+)\s+-----END PUBLIC KEY-----")


@dataclass(frozen=True, kw_only=True)
class PublicKey:
    """A key that verifies signatures: 32 bytes."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != KEY_BYTES:
            raise ValueError(f"an Ed25519 key has {KEY_BYTES} bytes, not {len(self.raw)}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of a PEM file, or the line of base64 in it. Raises ValueError."""
        found = _PUBLIC_PEM.search(text)
        line = found[1] if found else text.strip()
        if not _PUBLIC_LINE.fullmatch(line):
            if is_private(text):
                raise ValueError("this is a private key, but a public key is needed")
            raise ValueError("not a public Ed25519 key in PEM or in one line of base64")
        try:
            return cls(raw=base64.b64decode(line, validate=True).removeprefix(_PUBLIC_PREFIX))
        except binascii.Error:
            raise ValueError("not a public Ed25519 key in PEM or in one line of base64") from None

    @property
    def line(self) -> str:
        """The key's SubjectPublicKeyInfo in base64."""
        return base64.b64encode(_PUBLIC_PREFIX + self.raw).decode()

    @functools.cached_property
    def identity(self) -> bytes:
        """The identifier of the key in signatures: its SHA-256."""
        return hashlib.sha256(self.raw).digest()

    def verifies(self, signature: bytes, statement: bytes) -> bool:
        """Whether the private key signed exactly these bytes. Raises CacheError without `cryptography`."""
        with _Installed():
            from cryptography.exceptions import InvalidSignature
        try:
            self._loaded.verify(signature, statement)
        except (InvalidSignature, ValueError):
            return False
        return True

    @functools.cached_property
    def _loaded(self) -> Ed25519PublicKey:
        with _Installed():
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        return Ed25519PublicKey.from_public_bytes(self.raw)


def is_public_line(text: str) -> bool:
    """Whether the text is a public key, not the path of one."""
    return _PUBLIC_LINE.fullmatch(text.strip()) is not None


def is_private(text: str) -> bool:
    """Whether the text looks like a private key, in PEM or in base64."""
    return "PRIVATE KEY" in text or text.strip().startswith("MC4CAQAwBQYDK2Vw")


@dataclass(frozen=True, kw_only=True)
class PrivateKey:
    """A signing key, as the text of its PEM file. No part of the key is ever shown."""

    pem: str = field(repr=False)

    def __post_init__(self) -> None:
        if "-----BEGIN ENCRYPTED PRIVATE KEY-----" in self.pem:
            raise ValueError("the private key has a passphrase, which a build cannot enter")
        if "-----BEGIN PRIVATE KEY-----" not in self.pem:
            raise ValueError("not a private Ed25519 key in PEM")

    def sign(self, statement: bytes) -> bytes:
        """The 64 bytes of a signature. Raises CacheError for a key of another kind, or without `cryptography`."""
        return self._loaded.sign(statement)

    @functools.cached_property
    def public(self) -> PublicKey:
        return PublicKey(raw=self._loaded.public_key().public_bytes_raw())

    @functools.cached_property
    def _loaded(self) -> Ed25519PrivateKey:
        with _Installed():
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        try:
            key = load_pem_private_key(self.pem.encode(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None  # The parser's message is dropped, because it may quote the key.
        if not isinstance(key, Ed25519PrivateKey):
            raise CacheError(
                "the signing key is not a private Ed25519 key",
                advice=("make one: openssl genpkey -algorithm ed25519 -out FILE",),
            )
        return key


class _Installed:
    """A context manager that turns a failed import into a CacheError with advice."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, ImportError):
            raise CacheError(
                "signatures of results need the package cryptography, which is not installed",
                advice=("pip install 'mlcbuild[signing]'",),
            ) from None
