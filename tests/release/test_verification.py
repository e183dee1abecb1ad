"""A receiver is told of everything that is not as it was signed, whatever lies in the release."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.release import verification
from mlcbuild.release.places import Folder
from mlcbuild.release.signing import BUNDLE_TYPE, PAYLOAD_TYPE, PrivateKey, PublicKey
from mlcbuild.release.verification import ProblemKind, Verification, verify_release

from .world import new_key, signed_anew, written

PROVENANCE = "provenance.sigstore.json"
LIBRARY = "models/m-cpu/lib.so"


@pytest.fixture
def key() -> PrivateKey:
    return new_key()


@pytest.fixture
def release(tmp_path: Path, key: PrivateKey) -> Path:
    written(tmp_path / "release", key)
    return tmp_path / "release"


def verified(folder: Path, key: PrivateKey) -> Verification:
    return verify_release(Folder(folder), key.public)


def problems(folder: Path, key: PrivateKey) -> list[tuple[str, str]]:
    return [(problem.kind.value, problem.path) for problem in verified(folder, key).problems]


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
def test_what_was_released_is_verified(kind: str, tmp_path: Path) -> None:
    key = new_key(kind)
    written(tmp_path / "r", key)
    found = verified(tmp_path / "r", key)
    assert found.is_verified
    assert found.subjects is not None
    assert (found.subjects.release, found.subjects.version, found.files) == ("example", "1.0", 6)


def swap(folder: Path) -> None:
    library, weights = folder / LIBRARY, folder / "models/m-cpu/params_shard_0.bin"
    library.rename(folder / "x")
    weights.rename(library)
    (folder / "x").rename(weights)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / LIBRARY).write_text("librarY"), [("tampered", LIBRARY)]),
        (lambda folder: (folder / LIBRARY).write_text(""), [("tampered", LIBRARY)]),
        (lambda folder: (folder / LIBRARY).unlink(), [("missing", LIBRARY)]),
        (lambda folder: (folder / "models/new").write_text("x"), [("extra", "models/new")]),
        (lambda folder: (folder / "sbom.cdx.json").write_text("{}"), [("tampered", "sbom.cdx.json")]),
        (lambda folder: (folder / "licenses/models/m/LICENSE").unlink(), [("missing", "licenses/models/m/LICENSE")]),
        (swap, [("tampered", LIBRARY), ("tampered", "models/m-cpu/params_shard_0.bin")]),
        (lambda folder: (folder / "models/link").symlink_to(folder / LIBRARY), [("extra", "models/link")]),
        (lambda folder: os.mkfifo(folder / "models/pipe"), [("extra", "models/pipe")]),
        (lambda folder: (folder / "models/above").symlink_to(folder.parent), [("extra", "models/above")]),
        (
            lambda folder: (folder / PROVENANCE.replace(".json", ".jsonl")).write_text("x"),
            [("extra", f"{PROVENANCE}l")],
        ),
    ],
)
def test_a_changed_missing_or_additional_file_is_named(
    spoil: Callable[[Path], object], told: list[tuple[str, str]], release: Path, key: PrivateKey
) -> None:
    spoil(release)
    assert problems(release, key) == told


def test_changed_checksums_are_named_and_contradict_the_statement(release: Path, key: PrivateKey) -> None:
    sums = release / "SHA256SUMS"
    sums.write_text(sums.read_text().replace(sums.read_text()[:8], "00000000", 1))
    assert problems(release, key) == [("inconsistent", "SHA256SUMS"), ("tampered", "SHA256SUMS")]
    sums.write_bytes(b"\xff\n")
    assert problems(release, key) == [("inconsistent", "SHA256SUMS"), ("tampered", "SHA256SUMS")]


def test_a_link_to_a_file_of_the_right_content_is_no_file_of_the_release(release: Path, key: PrivateKey) -> None:
    (release / LIBRARY).rename(release.parent / "lib.so")
    (release / LIBRARY).symlink_to(release.parent / "lib.so")
    assert problems(release, key) == [("tampered", LIBRARY)]


def bundle_of(release: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((release / PROVENANCE).read_text())
    return found


def without(release: Path) -> None:
    (release / PROVENANCE).unlink()


def a_link(release: Path) -> None:
    (release / PROVENANCE).rename(release.parent / "elsewhere")
    (release / PROVENANCE).symlink_to(release.parent / "elsewhere")


def other_payload(release: Path) -> None:
    bundle = bundle_of(release)
    payload = base64.b64decode(bundle["dsseEnvelope"]["payload"]).replace(b'"1.0"', b'"1.1"')
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    (release / PROVENANCE).write_text(json.dumps(bundle))


def changed(path: str, value: object) -> Callable[[Path], None]:
    def change(release: Path) -> None:
        bundle = bundle_of(release)
        *above, last = path.split(".")
        place = bundle
        for name in above:
            place = place[name]
        place[last] = value
        (release / PROVENANCE).write_text(json.dumps(bundle))

    return change


def two_signatures(release: Path) -> None:
    signatures = bundle_of(release)["dsseEnvelope"]["signatures"]
    changed("dsseEnvelope.signatures", signatures * 2)(release)


def text(content: str) -> Callable[[Path], object]:
    return lambda release: (release / PROVENANCE).write_text(content)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (without, "is not there: this is no signed release"),
        (other_payload, "does not belong to its statement"),
        (text(""), "is not one Sigstore bundle"),
        (text("[" * 100_000), "is not one Sigstore bundle"),
        (lambda release: text((release / PROVENANCE).read_text() * 2)(release), "is not one Sigstore bundle"),
        (changed("mediaType", "application/vnd.dev.sigstore.bundle+json;version=0.1"), "of another version"),
        (changed("dsseEnvelope.payloadType", "application/json"), "payload of another type"),
        (changed("dsseEnvelope.signatures", []), "has 0 signatures"),
        (two_signatures, "has 2 signatures"),
        (changed("dsseEnvelope.signatures", [{"sig": "AAAA"}]), "does not belong to its statement"),
        (changed("verificationMaterial", {"tlogEntries": [], "certificate": {"rawBytes": "AA=="}}), "certificate"),
        (a_link, "is a symbolic link"),
    ],
)
def test_without_a_valid_signature_nothing_is_believed(
    spoil: Callable[[Path], object], told: str, release: Path, key: PrivateKey
) -> None:
    spoil(release)
    found = verified(release, key)
    assert found.subjects is None
    assert not found.is_verified
    (problem,) = found.problems
    assert (problem.kind, problem.path) == (ProblemKind.SIGNATURE, PROVENANCE)
    assert told in problem.message


def test_another_key_is_named(release: Path, key: PrivateKey) -> None:
    other = new_key()
    (problem,) = verified(release, other).problems
    assert problem.message == "is signed with another key"
    assert problem.details == (
        f"it names the key {key.public.fingerprint}",
        f"the given key is {other.public.fingerprint}",
    )


def test_the_hint_of_a_bundle_is_not_believed(release: Path, key: PrivateKey) -> None:
    other = new_key()
    changed("verificationMaterial.publicKey", {"hint": other.public.hint})(release)
    assert not verified(release, other).is_verified
    assert verified(release, key).is_verified


def test_a_release_without_a_signature_is_not_verified(tmp_path: Path, key: PrivateKey) -> None:
    written(tmp_path / "r", None)
    (problem,) = verified(tmp_path / "r", key).problems
    assert problem.message == "is not there: the release was made without a signature"


def test_a_huge_bundle_is_not_read(release: Path, key: PrivateKey, monkeypatch: pytest.MonkeyPatch) -> None:
    with (release / PROVENANCE).open("r+b") as stream:
        stream.truncate(verification.LARGEST_BUNDLE + 1)
    (problem,) = verified(release, key).problems
    assert "is too large" in problem.message


def renamed(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["subject"][0].update(name=name)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (renamed("../lib.so"), '".."'),
        (renamed("/absolute"), "is absolute"),
        (renamed("a//b"), "has an empty name"),
        (renamed(""), "is empty"),
        (renamed("a\nb"), "has a character"),
        (renamed("a\\b"), "has a character"),
        (renamed("a/" * 600 + "b"), "is too long"),
        (lambda document: document["subject"].append(dict(document["subject"][0])), "is there twice"),
        (lambda document: document["subject"][0].update(digest={"sha256": "AB" * 32}), "is not a SHA-256"),
        (lambda document: document["subject"][0].update(digest={"sha1": "ab" * 20}), "lacks a field"),
        (lambda document: document.update(subject=3), "lacks a field"),
        (lambda document: document.update(_type="https://in-toto.io/Statement/v0.1"), "not an in-toto Statement v1"),
        (lambda document: document.update(predicateType="https://example.com/x"), "is not SLSA provenance v1"),
        (lambda document: document["predicate"]["buildDefinition"].update(buildType="urn:x"), "of the type 'urn:x'"),
        (lambda document: document.update(predicate=[]), "lacks a field"),
    ],
)
def test_a_signed_statement_must_be_one_of_a_release(
    change: Callable[[dict[str, Any]], object], told: str, release: Path, key: PrivateKey
) -> None:
    signed_anew(release, key, change)
    found = verified(release, key)
    assert found.subjects is None
    (problem,) = found.problems
    assert problem.kind is ProblemKind.STATEMENT
    assert told in problem.message


def test_a_statement_that_leaves_files_out_does_not_cover_them(release: Path, key: PrivateKey) -> None:
    def leave_out(document: dict[str, Any]) -> None:
        document["subject"] = [each for each in document["subject"] if each["name"] != "sbom.cdx.json"]

    signed_anew(release, key, leave_out)
    assert problems(release, key) == [
        ("inconsistent", "SHA256SUMS"),
        ("extra", "sbom.cdx.json"),
        ("inconsistent", "sbom.cdx.json"),
    ]


@pytest.mark.parametrize(
    ("pem", "told"),
    [
        (b"", "is not a public key in PEM"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "is not a public key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\n", "is a private key; the public key is needed"),
    ],
)
def test_what_is_no_public_key_is_refused(pem: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        PublicKey.parse(pem)


def test_the_names_of_the_formats_are_those_of_their_specifications() -> None:
    assert PAYLOAD_TYPE == "application/vnd.in-toto+json"
    assert BUNDLE_TYPE == "application/vnd.dev.sigstore.bundle.v0.3+json"
