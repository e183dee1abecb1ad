"""What a release says is read by what others read such files with."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
from sigstore_models.bundle.v1 import Bundle

from mlcbuild.release.bill_of_materials import bill_of_materials
from mlcbuild.release.contents import RevisionInfo
from mlcbuild.release.making import make_release

from .documents import dependencies, statement
from .world import contents, new_key, written


def test_the_bill_of_materials_keeps_to_the_schema_of_cyclonedx() -> None:
    errors = JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill_of_materials(contents()).decode())
    assert errors is None
    with_time = json.loads(bill_of_materials(contents(epoch=86400)))
    assert with_time["metadata"]["timestamp"] == "1970-01-02T00:00:00+00:00"


def test_the_bill_of_materials_has_models_licences_sources_schemes_and_toolchains() -> None:
    document = json.loads(bill_of_materials(contents()))
    found = {each["bom-ref"]: each for each in document["components"]}
    model = found["model //models:m"]
    assert model["type"] == "machine-learning-model"
    assert model["licenses"] == [{"expression": "Apache-2.0 OR LicenseRef-own"}]
    assert model["purl"].startswith("pkg:huggingface/owner/name@")
    assert model["components"][0]["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert found["quantization q4f16_1"]["name"] == "q4f16_1"
    assert found["toolchain tvm"]["components"][0]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    needs = {each["ref"]: each.get("dependsOn", []) for each in document["dependencies"]}
    assert needs["//models:m-cpu"] == ["model //models:m", "quantization q4f16_1", "toolchain tvm"]
    assert needs["release"] == ["//models:m-cpu"]


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
def test_the_bundle_is_verified_by_the_libraries_of_its_formats(kind: str, tmp_path: Path) -> None:
    key = new_key(kind)
    written(tmp_path / "r", key)
    content = (tmp_path / "r/provenance.sigstore.json").read_bytes()
    bundle = Bundle.from_json(content)
    assert bundle.media_type == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert bundle.dsse_envelope is not None
    envelope = Envelope.from_dict(json.loads(content)["dsseEnvelope"])
    public = SSlibKey.from_crypto(key._key.public_key(), keyid=key.public.hint)
    assert list(envelope.verify([public], 1)) == [key.public.hint]


def test_openssl_verifies_the_signature_over_the_encoding_of_dsse(tmp_path: Path) -> None:
    for command in (
        "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out release.key",
        "openssl pkey -in release.key -pubout -out release.pub",
    ):
        subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    from mlcbuild.release.signing import PrivateKey

    written(tmp_path / "r", PrivateKey((tmp_path / "release.key").read_bytes()))
    envelope = json.loads((tmp_path / "r/provenance.sigstore.json").read_bytes())["dsseEnvelope"]
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
    (tmp_path / "pae").write_bytes(b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload))
    (tmp_path / "signature").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    command = "openssl dgst -sha256 -verify release.pub -signature signature pae"
    said = subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True, text=True)
    assert said.stdout == "Verified OK\n"


def test_the_statement_is_one_of_in_toto_with_provenance_of_slsa(tmp_path: Path) -> None:
    written(tmp_path / "r", new_key())
    document = statement(tmp_path / "r")
    definition = document["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["targets"] == ["//models:m-cpu"]
    made_of = dependencies(tmp_path / "r")
    assert made_of["workspace"]["annotations"] == {"changed": False}
    assert made_of["//models:hub"]["digest"]["gitCommit"].startswith("0123")
    assert made_of["//models:hub/a"]["digest"] == {"sha256": "a" * 64}
    assert made_of["toolchain tvm"]["digest"] == {"sha256": "f" * 64}
    assert document["predicate"]["runDetails"]["byproducts"] == [
        {"name": "//models:m-cpu Link", "digest": {"blake3": "c" * 64}}
    ]
    assert "metadata" not in document["predicate"]["runDetails"]


def test_sha256sum_checks_the_files(tmp_path: Path) -> None:
    written(tmp_path / "r", new_key())
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path / "r", check=True)


def test_equal_contents_make_equal_bytes() -> None:
    key = new_key()
    first, second = make_release(contents(), key), make_release(contents(), key)
    assert first.files == second.files
    other = make_release(contents(revision=RevisionInfo(commit="1" * 40, is_changed=True)), key)
    assert other.files[:-1] == first.files[:-1]
    assert other.files[-1] != first.files[-1]
