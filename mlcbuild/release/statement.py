"""The provenance of a release: an in-toto Statement v1 with a SLSA provenance v1 predicate.

Formats: in-toto/attestation, spec/v1; slsa.dev/spec/v1.0/provenance. docs/releases.md documents the build type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mlcbuild.release.contents import Digested, Material, ReleaseContents, ReleaseFile, SourceInfo
from mlcbuild.release.layout import path_error

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:mlcbuild:build-type:release:v1"
DEFAULT_BUILDER = "urn:mlcbuild:builder:command-line"

_DIGITS = frozenset("0123456789abcdef")


def statement(contents: ReleaseContents, files: Iterable[ReleaseFile]) -> bytes:
    """The statement as JSON. `files` are its subjects: all files of the release but the one that it lies in."""
    parameters: dict[str, Any] = {
        "configuration": contents.configuration,
        "overrides": list(contents.overrides),
        "release": contents.name,
        "targets": [target.label for target in contents.targets],
        "version": contents.version,
    }
    details: dict[str, Any] = {
        "builder": {"id": contents.builder, "version": {"mlcbuild": contents.builder_version}},
        "byproducts": [{"name": each.action, "digest": {each.key.algorithm: each.key.value}} for each in contents.keys],
    }
    if contents.epoch is not None:
        finished = datetime.fromtimestamp(contents.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        details["metadata"] = {"finishedOn": finished}
    return _json(
        {
            "_type": STATEMENT_TYPE,
            "subject": [
                {"name": file.path, "digest": {"sha256": file.sha256}}
                for file in sorted(files, key=lambda each: each.path)
            ],
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "buildDefinition": {
                    "buildType": BUILD_TYPE,
                    "externalParameters": parameters,
                    "internalParameters": {},
                    "resolvedDependencies": _dependencies(contents),
                },
                "runDetails": details,
            },
        }
    )


def _dependencies(contents: ReleaseContents) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if revision := contents.revision:
        described = _descriptor(
            Material(
                name="workspace",
                uri=revision.uri,
                digests=(Digested(algorithm="gitCommit", value=revision.commit),),
            )
        )
        found.append({**described, "annotations": {"changed": revision.is_changed}})
    for model in contents.models:
        for source in (*([model.source] if model.source else []), *model.adapters):
            found += [_descriptor(material) for material in _materials(source)]
    for toolchain in contents.toolchains:
        described = _descriptor(
            Material(
                name=f"toolchain {toolchain.name}",
                digests=(Digested(algorithm="sha256", value=toolchain.fingerprint),),
            )
        )
        found.append({**described, "annotations": {"version": toolchain.version}})
    return [json.loads(each) for each in dict.fromkeys(json.dumps(one, sort_keys=True) for one in found)]


def _materials(source: SourceInfo) -> list[Material]:
    return [*([source.origin] if source.origin else []), *source.files]


def _descriptor(material: Material) -> dict[str, Any]:
    """A ResourceDescriptor."""
    described: dict[str, Any] = {"name": material.name}
    if material.uri:
        described["uri"] = material.uri
    if material.digests:
        described["digest"] = {digest.algorithm: digest.value for digest in material.digests}
    return described


def _json(document: object) -> bytes:
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """What a statement says of a release. `digests` maps paths to SHA-256."""

    release: str
    version: str
    targets: tuple[str, ...]
    builder: str
    digests: Mapping[str, str]


def read_statement(payload: bytes) -> Subjects:
    """Read a statement as `statement` writes it. Raises ValueError for anything else; the message says what it is."""
    try:
        document = json.loads(payload.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise ValueError("the statement is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"the statement is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("_type") != STATEMENT_TYPE:
        raise ValueError("what is signed is not an in-toto Statement v1")
    if document.get("predicateType") != PREDICATE_TYPE:
        raise ValueError(f"what is signed is not SLSA provenance v1 but {document.get('predicateType')!r}")
    try:
        definition = document["predicate"]["buildDefinition"]
        parameters = definition["externalParameters"]
        if definition["buildType"] != BUILD_TYPE:
            raise ValueError(f"what is signed is not a release but a build of the type {definition['buildType']!r}")
        return Subjects(
            release=_text(parameters["release"]),
            version=_text(parameters["version"]),
            targets=tuple(_text(label) for label in parameters["targets"]),
            builder=_text(document["predicate"]["runDetails"]["builder"]["id"]),
            digests=_digests(document["subject"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the statement lacks a field: {error}") from None


def _digests(subjects: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for subject in subjects:
        path, digest = _text(subject["name"]), _text(subject["digest"]["sha256"])
        if reason := path_error(path):
            raise ValueError(f"the path of a subject, {path!r}, {reason}")
        if len(digest) != 64 or not set(digest) <= _DIGITS:
            raise ValueError(f"the digest of the subject {path} is not a SHA-256")
        if path in found:
            raise ValueError(f"the subject {path} is there twice")
        found[path] = digest
    return found


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found
