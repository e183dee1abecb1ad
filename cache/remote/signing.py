"""Results signed by who made them, and checked before they are believed.

A signature is one `google.protobuf.Any` in the result's `execution_metadata.auxiliary_metadata`, where REAPI keeps what
only some understand, so a server needs to know nothing of it::

    type_url "type.mlcbuild.dev/ResultSignature", value {1 SHA-256 of the public key, 2 the Ed25519 signature}

What is signed is framed as a message too, after a line that no other use of the key begins with::

    {1 the key's hash, 2 its size in bytes, 3 the salt, 4 the result in canonical encoding, without signatures}

So a result that is moved to another key, another salt, or differs in one byte, is found. Its blobs need no signature:
it names them by digest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from mlcbuild.cache import wire
from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult, AnyMessage, ExecutedActionMetadata
from mlcbuild.cache.remote.keys import SIGNATURE_BYTES, PrivateKey, PublicKey

SIGNATURE_TYPE_URL = "type.mlcbuild.dev/ResultSignature"
UNSIGNED = "unsigned"
WRONG = "wrongly signed"
UNKNOWN = "signed by an unknown key"

_FIRST_LINE = b"mlcbuild result signature 1\n"


class Signatures:
    """Signs with one key, if any, and believes any of several, so that keys can be changed one after the other.

    Without trusted keys everything is believed. Who signs believes itself. Both methods raise CacheError where
    `cryptography` is missing or the signing key is no key; they may be called from any thread.
    """

    def __init__(
        self, *, signing_key: PrivateKey | None = None, trusted_keys: Sequence[PublicKey] = (), salt: str = ""
    ) -> None:
        self._signing_key = signing_key
        self._trusted = {key.identity: key for key in trusted_keys}
        self._salt = salt

    @property
    def signs(self) -> bool:
        return self._signing_key is not None

    @property
    def checks(self) -> bool:
        return bool(self._trusted)

    def sign(self, key: Digest, result: ActionResult) -> ActionResult:
        """The result with our signature in the place of all others; as it is where we have no key to sign with."""
        if self._signing_key is None:
            return result
        bare = without_signatures(result)
        signature = self._signing_key.sign(_statement(key, bare, self._salt))
        value = wire.bytes_field(1, self._signing_key.public.identity) + wire.bytes_field(2, signature)
        metadata = bare.execution_metadata or ExecutedActionMetadata()
        signed = (*metadata.auxiliary_metadata, AnyMessage(type_url=SIGNATURE_TYPE_URL, value=value))
        return dataclasses.replace(bare, execution_metadata=dataclasses.replace(metadata, auxiliary_metadata=signed))

    def check(self, key: Digest, result: ActionResult) -> str:
        """Why the result is not to be believed: `UNSIGNED`, `WRONG` or `UNKNOWN`; "" where it is."""
        if not self._trusted:
            return ""
        signatures = _signatures_of(result)
        if not signatures:
            return UNSIGNED
        statement = _statement(key, without_signatures(result), self._salt)
        reason = UNKNOWN
        for signature in signatures:
            trusted = self._believed(signature.identity) if signature else None
            if signature is not None and trusted is not None and trusted.verifies(signature.signature, statement):
                return ""
            if signature is None or trusted is not None:
                reason = WRONG
        return reason

    def _believed(self, identity: bytes) -> PublicKey | None:
        found = self._trusted.get(identity)
        if found is None and self._signing_key is not None and self._signing_key.public.identity == identity:
            return self._signing_key.public
        return found


class _Signature(NamedTuple):
    identity: bytes
    signature: bytes


def without_signatures(result: ActionResult) -> ActionResult:
    """What is signed of it. Metadata that holds nothing else goes as well: a signature may have brought it."""
    metadata = result.execution_metadata
    if metadata is None:
        return result
    others = tuple(item for item in metadata.auxiliary_metadata if item.type_url != SIGNATURE_TYPE_URL)
    metadata = dataclasses.replace(metadata, auxiliary_metadata=others)
    return dataclasses.replace(result, execution_metadata=None if metadata == ExecutedActionMetadata() else metadata)


def _signatures_of(result: ActionResult) -> list[_Signature | None]:
    """In order; None for one that is not in our form."""
    if result.execution_metadata is None:
        return []
    return [
        _read(item.value)
        for item in result.execution_metadata.auxiliary_metadata
        if item.type_url == SIGNATURE_TYPE_URL
    ]


def _read(value: bytes) -> _Signature | None:
    try:
        fields = wire.parse(value)
        found = _Signature(wire.one_bytes(fields, 1) or b"", wire.one_bytes(fields, 2) or b"")
    except ValueError:
        return None
    return found if len(found.signature) == SIGNATURE_BYTES else None


def _statement(key: Digest, bare: ActionResult, salt: str) -> bytes:
    return b"".join(
        [
            _FIRST_LINE,
            wire.bytes_field(1, bytes.fromhex(key.hash)),
            wire.integer_field(2, key.size_bytes),
            wire.text_field(3, salt),
            wire.bytes_field(4, bare.encode()),
        ]
    )
