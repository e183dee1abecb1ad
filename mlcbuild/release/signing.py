"""Signatures of provenance: a DSSE envelope in Sigstore's bundle, made with a key of one's own.

Formats: secure-systems-lab/dsse, envelope.md and protocol.md; sigstore/protobuf-specs, sigstore_bundle.proto, v0.3.
Keys are PEM files as OpenSSL writes them, Ed25519 or ECDSA on P-256. The bundle names the key by a hint, which is the
SHA-256 of its SubjectPublicKeyInfo in base64, as cosign's are. There is no entry of a transparency log.

`securesystemslib`, `sigstore_models` and `cryptography` are imported when a key is used.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.release.extra import package_of

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, SSlibKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
MAKE_A_KEY = "openssl genpkey -algorithm ed25519 -out release.key"
MAKE_ITS_PUBLIC_KEY = "openssl pkey -in release.key -pubout -out release.pub"


class SignatureError(Exception):
    """The bundle is not one, or its signature was not made with the key. The message says which, `details` more."""

    def __init__(self, message: str, *, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.details = details


@dataclass(frozen=True, kw_only=True)
class PublicKey:
    """A key that verifies. `spki` is its SubjectPublicKeyInfo in DER."""

    spki: bytes

    @classmethod
    def parse(cls, pem: bytes) -> Self:
        """Raises ValueError for anything but a public Ed25519 or P-256 key, LocalEnvironmentError without the extra."""
        if b"PRIVATE KEY-----" in pem:
            raise ValueError("is a private key; the public key is needed")
        with _Installed():
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.serialization import load_pem_public_key
        try:
            loaded = load_pem_public_key(pem)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ValueError("is not a public key in PEM") from None
        return cls(spki=_checked(loaded))

    @property
    def fingerprint(self) -> str:
        """`SHA256:` and the SHA-256 of the key in base64, as OpenSSH shows fingerprints."""
        return f"SHA256:{self.hint.rstrip('=')}"

    @property
    def hint(self) -> str:
        return base64.b64encode(hashlib.sha256(self.spki).digest()).decode()

    def verifier(self) -> SSlibKey:
        """The key for DSSE, by the hint as its identifier."""
        with _Installed():
            from cryptography.hazmat.primitives.serialization import load_der_public_key
            from securesystemslib.signer import SSlibKey
        return SSlibKey.from_crypto(load_der_public_key(self.spki), keyid=self.hint)


class PrivateKey:
    """A signing key from the text of a PEM file. No part of the key is ever shown.

    Raises ValueError for anything but an Ed25519 or P-256 key without a passphrase, LocalEnvironmentError without the
    extra.
    """

    def __init__(self, pem: bytes) -> None:
        if b"ENCRYPTED" in pem:
            raise ValueError("has a passphrase, which a release cannot enter")
        with _Installed():
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        try:
            self._key = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ValueError("is not a private key in PEM") from None  # The parser's message may quote the key.
        self.public = PublicKey(spki=_checked(self._key.public_key()))

    def signer(self) -> CryptoSigner:
        with _Installed():
            from securesystemslib.signer import CryptoSigner
        return CryptoSigner(self._key, self.public.verifier())


def sign(statement: bytes, key: PrivateKey) -> bytes:
    """The bundle with the signed statement, as JSON. With an Ed25519 key, equal statements make equal bundles."""
    with _Installed():
        from securesystemslib.dsse import Envelope
        from sigstore_models.bundle.v1 import Bundle
    envelope = Envelope(statement, PAYLOAD_TYPE, {})
    envelope.sign(key.signer())
    bundle = {
        "mediaType": BUNDLE_TYPE,
        "verificationMaterial": {"publicKey": {"hint": key.public.hint}, "tlogEntries": []},
        "dsseEnvelope": envelope.to_dict(),
    }
    return (json.dumps(Bundle.from_dict(bundle).to_dict(), indent=1) + "\n").encode()


def verify(bundle: bytes, key: PublicKey) -> bytes:
    """The statement in a bundle that `key` signed. Raises SignatureError for everything else."""
    with _Installed():
        from pydantic import ValidationError
        from securesystemslib.dsse import Envelope
        from securesystemslib.exceptions import VerificationError
        from sigstore_models.bundle.v1 import Bundle
    try:
        read = Bundle.from_json(bundle)
    except (ValidationError, ValueError, RecursionError) as error:
        raise SignatureError(f"is not one Sigstore bundle: {_first_line(error)}") from None
    if read.media_type != BUNDLE_TYPE:
        raise SignatureError(f"is a Sigstore bundle of another version, {read.media_type}")
    if read.dsse_envelope is None:
        raise SignatureError("has a signature of bytes, not of a statement")
    if read.dsse_envelope.payload_type != PAYLOAD_TYPE:
        raise SignatureError(f'has a signed payload of another type, "{read.dsse_envelope.payload_type}"')
    if len(read.dsse_envelope.signatures) != 1:
        raise SignatureError(f"has {len(read.dsse_envelope.signatures)} signatures; a bundle has one")
    named = read.verification_material.public_key
    if named is None:
        raise SignatureError("is signed with a certificate, not with a key")
    document = read.dsse_envelope.to_dict()
    document["signatures"][0]["keyid"] = key.hint  # Only a hint, and not signed: the given key has to fit.
    try:
        envelope = Envelope.from_dict(document)
        envelope.verify([key.verifier()], 1)
    except (VerificationError, ValueError, KeyError):
        if named.hint not in (None, key.hint):
            other = "SHA256:" + str(named.hint).rstrip("=")
            details = (f"it names the key {other}", f"the given key is {key.fingerprint}")
            raise SignatureError("is signed with another key", details=details) from None
        raise SignatureError("has a signature that does not belong to its statement") from None
    return bytes(envelope.payload)


def _checked(key: Any) -> bytes:
    """The SubjectPublicKeyInfo of a public key. Raises ValueError for one of another kind."""
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    is_p256 = isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1)
    if not (is_p256 or isinstance(key, Ed25519PublicKey)):
        raise ValueError("is neither an Ed25519 key nor an ECDSA key on P-256")
    spki: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return spki


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join(lines[1:3]) if len(lines) > 2 else "".join(lines[:1])


class _Installed:
    """A context manager that turns a failed import into an error with advice."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, ImportError):
            raise LocalEnvironmentError(
                f"signatures of releases need the package {package_of(error)}, which is not installed",
                advice=("pip install 'mlcbuild[release]'",),
            ) from None
