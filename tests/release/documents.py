"""What a release says of itself, read by what others read such files with."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.statement import Statement


def bill_of_materials(folder: Path) -> dict[str, Any]:
    """The SBOM, after CycloneDX's own schema has accepted it."""
    text = (folder / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found: dict[str, Any] = json.loads(text)
    return found


def components(folder: Path) -> dict[str, Any]:
    """The components of the SBOM by reference."""
    return {each["bom-ref"]: each for each in bill_of_materials(folder)["components"]}


def hashes(component: dict[str, Any]) -> dict[str, str]:
    return {each["alg"]: each["content"] for each in component.get("hashes", ())}


def properties(component: dict[str, Any]) -> dict[str, str]:
    return {each["name"].removeprefix("mlcbuild:"): each["value"] for each in component.get("properties", ())}


def statement(folder: Path) -> dict[str, Any]:
    """The in-toto Statement of a release, after the messages of in-toto and of SLSA have taken it, which have no field
    that it lacks.
    """
    signed, unsigned = folder / "provenance.sigstore.json", folder / "provenance.intoto.json"
    content = unsigned.read_bytes() if unsigned.exists() else b""
    if signed.exists():
        content = base64.b64decode(json.loads(signed.read_bytes())["dsseEnvelope"]["payload"])
    found: dict[str, Any] = json.loads(content)
    read = Statement([], "", {})
    json_format.ParseDict(found, read.pb)
    read.validate()
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    provenance = json_format.ParseDict(found["predicate"], Provenance())
    assert provenance.build_definition.build_type
    assert provenance.run_details.builder.id
    return found


def dependencies(folder: Path) -> dict[str, Any]:
    """What the provenance says that the release was made of, by name."""
    resolved = statement(folder)["predicate"]["buildDefinition"]["resolvedDependencies"]
    return {each["name"]: each for each in resolved}
