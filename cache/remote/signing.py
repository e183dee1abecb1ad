"""Signatures of results, which are verified before a result is used.

A signature is one `google.protobuf.Any` in the result's `execution_metadata.auxiliary_metadata`, REAPI's place for data
that a server need not understand::

    type_url "type.mlcbuild.dev/ResultSignature", value {1 SHA-256 of the public key, 2 the Ed25519 signature}

The signed bytes are a line that no other use of the key begins with, and a message::

    {1 the key's hash, 2 its size in bytes, 3 the salt, 4 the result in canonical encoding, without signatures}

So a signature is invalid for another key, another salt, or a result that differs in one byte. Blobs need no signature,
because the result names them by digest.
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
    """Signs with one key, or none, and trusts several, so that keys can be replaced one by one.

    Without trusted keys, every result is trusted. With them, the signing key is trusted too. Both methods raise
    CacheError if `cryptography` is missing or the signing key is invalid. They may be called from any thread.
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
        """The result with our signature instead of any others. Without a signing key, the result as it is."""
        if self._signing_key is None:
            return result
        bare = without_signatures(result)
        signature = self._signing_key.sign(_statement(key, bare, self._salt))
        value = wire.bytes_field(1, self._signing_key.public.identity) + wire.bytes_field(2, signature)
        metadata = bare.execution_metadata or ExecutedActionMetadata()
        signed = (*metadata.auxiliary_metadata, AnyMessage(type_url=SIGNATURE_TYPE_URL, value=value))
        return dataclasses.replace(bare, execution_metadata=dataclasses.replace(metadata, auxiliary_metadata=signed))

    def check(self, key: Digest, result: ActionResult) -> str:
        """Why the result is not trusted: `UNSIGNED`, `WRONG` or `UNKNOWN`; "" if it is."""
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
    """The result as it is signed. Metadata without other content is removed, as a signature may have added it."""
    metadata = result.execution_metadata
    if metadata is None:
        return result
    others = tuple(item for item in metadata.auxiliary_metadata if item.type_url != SIGNATURE_TYPE_URL)
    metadata = dataclasses.replace(metadata, auxiliary_metadata=others)
    return dataclasses.replace(result, execution_metadata=None if metadata == ExecutedActionMetadata() else metadata)


def _signatures_of(result: ActionResult) -> list[_Signature | None]:
    """The signatures, in order; None for an invalid one."""
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
