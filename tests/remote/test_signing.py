"""A signed result is believed as it was signed, and in no other form."""

from __future__ import annotations

import base64
import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.cache import reapi
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.keys import PrivateKey, PublicKey
from mlcbuild.cache.remote.signing import SIGNATURE_TYPE_URL, UNKNOWN, UNSIGNED, WRONG, Signatures
from mlcbuild.errors import CacheError


def private_key(seed: int) -> PrivateKey:
    made = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    return PrivateKey(pem=made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


OURS, OLD, FOREIGN = private_key(1), private_key(2), private_key(3)
SIGNER = Signatures(signing_key=OURS, trusted_keys=[OURS.public])
READER = Signatures(trusted_keys=[OURS.public, OLD.public])
KEY = DigestFunction.BLAKE3.of_bytes(b"an action")
RESULT = reapi.ActionResult(
    output_files=(
        reapi.OutputFile(
            path="a/ü", digest=DigestFunction.BLAKE3.of_bytes(b"x" * 9), is_executable=True, contents=b"x" * 9
        ),
    ),
    output_directories=(reapi.OutputDirectory(path="d", tree_digest=DigestFunction.BLAKE3.of_bytes(b"tree")),),
    stdout_digest=DigestFunction.BLAKE3.of_bytes(b"log"),
    execution_metadata=reapi.ExecutedActionMetadata(
        worker="w", auxiliary_metadata=(reapi.AnyMessage(type_url="type.mlcbuild.dev/KeyBreakdown", value=b"b"),)
    ),
)

digests = st.builds(Digest, st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(0, 1 << 40))
others = st.lists(st.builds(reapi.AnyMessage, type_url=st.sampled_from(["a", "b"]), value=st.binary(max_size=9)))
results = st.builds(
    reapi.ActionResult,
    output_files=st.lists(st.builds(reapi.OutputFile, path=st.text(max_size=9), digest=digests), max_size=3).map(tuple),
    exit_code=st.integers(-9, 9),
    stdout_raw=st.binary(max_size=9),
    stderr_digest=st.none() | digests,
    execution_metadata=st.none()
    | st.builds(reapi.ExecutedActionMetadata, worker=st.text(max_size=9), auxiliary_metadata=others.map(tuple)),
)


@given(digests, results, st.text(max_size=9))
def test_what_was_signed_is_believed_after_its_way_over_the_wire(
    key: Digest, result: reapi.ActionResult, salt: str
) -> None:
    signed = Signatures(signing_key=OURS, salt=salt).sign(key, result)
    received = reapi.ActionResult.decode(signed.encode())
    assert Signatures(trusted_keys=[OLD.public, OURS.public], salt=salt).check(key, received) == ""


@settings(max_examples=1000)
@given(st.data())
def test_any_changed_byte_of_a_result_is_found(data: st.DataObject) -> None:
    signed = SIGNER.sign(KEY, RESULT)
    changed = bytearray(signed.encode())
    position = data.draw(st.integers(0, len(changed) - 1))
    changed[position] ^= data.draw(st.integers(1, 255))
    try:
        received = reapi.ActionResult.decode(bytes(changed))
    except ValueError:
        return  # found before anybody looks for a signature
    # A flag that is written as 3 is the flag: what is believed is what was signed, whatever its bytes.
    assert READER.check(KEY, received) or received == signed


@given(st.integers(0, 63), st.integers(1, 15), st.integers(-3, 3))
def test_any_changed_digit_of_a_key_is_found(position: int, change: int, size: int) -> None:
    digits = list(KEY.hash)
    digits[position] = f"{int(digits[position], 16) ^ change:x}"
    signed = SIGNER.sign(KEY, RESULT)
    assert READER.check(Digest("".join(digits), KEY.size_bytes), signed) == WRONG
    moved = Digest(KEY.hash, KEY.size_bytes + size)
    assert READER.check(moved, signed) == ("" if size == 0 else WRONG)


def test_each_reason_is_told_apart() -> None:
    assert READER.check(KEY, RESULT) == UNSIGNED
    assert READER.check(KEY, Signatures(signing_key=FOREIGN).sign(KEY, RESULT)) == UNKNOWN
    assert READER.check(KEY, dataclasses.replace(SIGNER.sign(KEY, RESULT), exit_code=1)) == WRONG
    assert READER.check(KEY, with_signature(b"\x0a\x00")) == WRONG
    assert READER.check(KEY, with_signature(b"\xff")) == WRONG


def with_signature(value: bytes) -> reapi.ActionResult:
    metadata = reapi.ExecutedActionMetadata(
        worker="w", auxiliary_metadata=(reapi.AnyMessage(type_url=SIGNATURE_TYPE_URL, value=value),)
    )
    return dataclasses.replace(RESULT, execution_metadata=metadata)


def test_a_result_of_another_salt_is_not_believed() -> None:
    signed = Signatures(signing_key=OURS, salt="1").sign(KEY, RESULT)
    assert Signatures(trusted_keys=[OURS.public], salt="2").check(KEY, signed) == WRONG


def test_keys_are_rotated_by_trusting_both_for_a_while() -> None:
    old = Signatures(signing_key=OLD).sign(KEY, RESULT)
    assert READER.check(KEY, old) == ""
    assert Signatures(trusted_keys=[OURS.public]).check(KEY, old) == UNKNOWN
    anew = SIGNER.sign(KEY, old)
    assert Signatures(trusted_keys=[OURS.public]).check(KEY, anew) == ""
    assert anew == SIGNER.sign(KEY, RESULT)


def test_one_good_signature_is_enough() -> None:
    foreign = Signatures(signing_key=FOREIGN).sign(KEY, RESULT)
    ours = SIGNER.sign(KEY, RESULT)
    assert foreign.execution_metadata is not None
    assert ours.execution_metadata is not None
    both = dataclasses.replace(
        ours,
        execution_metadata=dataclasses.replace(
            ours.execution_metadata,
            auxiliary_metadata=(
                *foreign.execution_metadata.auxiliary_metadata,
                ours.execution_metadata.auxiliary_metadata[-1],
            ),
        ),
    )
    assert READER.check(KEY, both) == ""


def test_who_signs_believes_itself_and_without_trusted_keys_everything_is_believed() -> None:
    assert Signatures(signing_key=OURS, trusted_keys=[OLD.public]).check(KEY, SIGNER.sign(KEY, RESULT)) == ""
    assert Signatures(signing_key=OURS).check(KEY, RESULT) == ""
    assert Signatures().sign(KEY, RESULT) is RESULT


def test_keys_are_those_that_openssl_makes(tmp_path: Path) -> None:
    private, public = tmp_path / "ci.key", tmp_path / "ci.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    signing_key = PrivateKey(pem=private.read_text())
    trusted = PublicKey.parse(public.read_text())
    assert trusted == signing_key.public
    assert PublicKey.parse(public.read_text().splitlines()[1]) == trusted
    assert PublicKey.parse(trusted.line) == trusted
    assert Signatures(trusted_keys=[trusted]).check(KEY, Signatures(signing_key=signing_key).sign(KEY, RESULT)) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a public Ed25519 key"),
        (OURS.pem, "this is a private key"),
        (OURS.public.line[:-2] + "=", "not a public Ed25519 key"),
        (base64.b64encode(bytes(44)).decode(), "not a public Ed25519 key"),
    ],
)
def test_what_is_no_public_key_is_refused_without_being_shown(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        PublicKey.parse(text)
    assert not text or text not in str(refused.value)


def test_a_private_key_is_never_shown(tmp_path: Path) -> None:
    secret = OURS.pem.splitlines()[1]
    assert secret not in repr(OURS)
    for text in (secret, OURS.pem.replace("PRIVATE", "ENCRYPTED PRIVATE")):
        with pytest.raises(ValueError, match="private") as refused:
            PrivateKey(pem=text)
        assert secret not in str(refused.value)
    torn = PrivateKey(pem=OURS.pem.replace(secret, secret[:-4]))
    with pytest.raises(CacheError, match="not a private Ed25519 key") as failed:
        torn.sign(b"")
    assert secret[:20] not in str(failed.value)
    rsa = tmp_path / "rsa.key"
    subprocess.run(["openssl", "genpkey", "-algorithm", "rsa", "-out", rsa], check=True, capture_output=True)
    with pytest.raises(CacheError, match="not a private Ed25519 key"):
        PrivateKey(pem=rsa.read_text()).sign(b"")


def test_without_cryptography_it_is_said_what_to_install() -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from mlcbuild.cache.remote.keys import PublicKey\n"
        "from mlcbuild.errors import CacheError\n"
        "try: PublicKey(raw=bytes(32)).verifies(bytes(64), b'')\n"
        "except CacheError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "signatures of results need the package cryptography, which is not installed\n"
        "  pip install 'mlcbuild[signing]'\n"
    )


def test_keys_and_signatures_import_cryptography_when_they_are_used() -> None:
    program = (
        "import sys\n"
        "from mlcbuild.cache.remote.keys import PrivateKey, PublicKey\n"
        "from mlcbuild.cache.remote.signing import Signatures\n"
        "from mlcbuild.cache.reapi import ActionResult\n"
        "from mlcbuild.cache.digest import Digest\n"
        "Signatures(trusted_keys=[PublicKey(raw=bytes(32))]).check(Digest('0' * 64, 1), ActionResult())\n"
        "print([name for name in ('cryptography', 'ssl') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
