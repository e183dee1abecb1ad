"""The software bill of materials: CycloneDX 1.6 in JSON (ECMA-424), made with cyclonedx-python-lib.

Models are components of the type `machine-learning-model`, packages and toolchains `application`, quantization schemes
`data`, distributions `library`. What CycloneDX has no field for is in properties whose names begin with `mlcbuild:`.
"""

from __future__ import annotations

import hashlib
import json
import uuid
import warnings
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.release.contents import (
    Digested,
    DistributionInfo,
    Material,
    ModelInfo,
    ReleaseContents,
    ReleaseFile,
    TargetInfo,
    ToolchainInfo,
)
from mlcbuild.release.extra import package_of

if TYPE_CHECKING:
    from cyclonedx.model import ExternalReference, HashType, Property
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
    from packageurl import PackageURL

_TOOL = "mlcbuild"


def bill_of_materials(contents: ReleaseContents) -> bytes:
    """The SBOM as JSON. Equal contents make equal bytes. Raises LocalEnvironmentError without the extra."""
    try:
        from cyclonedx.model.bom import Bom, BomMetaData
        from cyclonedx.model.component import Component, ComponentType
        from cyclonedx.model.tool import ToolRepository
        from cyclonedx.output.json import JsonV1Dot6
    except ImportError as error:
        raise LocalEnvironmentError(
            f"a bill of materials needs the package {package_of(error)}, which is not installed",
            advice=("pip install 'mlcbuild[release]'",),
        ) from None
    release = Component(
        name=contents.name, version=contents.version or None, type=ComponentType.APPLICATION, bom_ref="release"
    )
    tool = Component(name=_TOOL, version=contents.builder_version, type=ComponentType.APPLICATION, bom_ref=_TOOL)
    bom = Bom(
        serial_number=_serial_number(contents),
        metadata=BomMetaData(component=release, tools=ToolRepository(components=[tool])),
    )
    if contents.epoch is not None:
        bom.metadata.timestamp = datetime.fromtimestamp(contents.epoch, UTC)
    schemes = {name: _scheme(name) for name in sorted({each.quantization for each in contents.targets} - {""})}
    models = {each.label: _model(each) for each in contents.models}
    toolchains = {each.name: _toolchain(each) for each in contents.toolchains}
    for component in (*schemes.values(), *models.values(), *toolchains.values()):
        bom.components.add(component)
    packages = []
    for target in contents.targets:
        package = _package(target)
        packages.append(package)
        bom.components.add(package)
        needed = [models[label] for label in target.models] + [toolchains[name] for name in target.toolchains]
        bom.register_dependency(package, needed + ([schemes[target.quantization]] if target.quantization else []))
    for model in contents.models:
        bom.register_dependency(models[model.label], models[model.label].components)
    bom.register_dependency(release, packages)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The library warns of components that nothing depends on.
        document = json.loads(JsonV1Dot6(bom).output_as_string())
    if contents.epoch is None:
        document["metadata"].pop("timestamp", None)  # The library sets the current time.
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _serial_number(contents: ReleaseContents) -> uuid.UUID:
    """A UUID that is a function of the content."""
    said = json.dumps([contents.name, contents.version, [[file.path, file.sha256] for file in contents.files]])
    return uuid.UUID(bytes=hashlib.sha256(said.encode()).digest()[:16], version=5)


def _package(target: TargetInfo) -> Component:
    from cyclonedx.model.component import Component, ComponentType

    said = {"label": target.label, "rule": target.rule, "folder": target.folder, "platform": target.platform}
    return Component(
        name=target.label,
        type=ComponentType.APPLICATION,
        bom_ref=target.label,
        components=[_file(file) for file in target.files],
        properties=_properties({**said, "quantization": target.quantization}),
    )


def _file(file: ReleaseFile) -> Component:
    from cyclonedx.model.component import Component, ComponentType

    digest = Digested(algorithm="sha256", value=file.sha256)
    return Component(name=file.path, type=ComponentType.FILE, bom_ref=f"file {file.path}", hashes=_hashes((digest,)))


def _model(model: ModelInfo) -> Component:
    from cyclonedx.model.component import Component, ComponentType

    source = model.source
    origin = source.origin if source else None
    said = {
        "label": model.label,
        "family": model.family,
        "license-source": model.license_where,
        "license-texts": " ".join(model.license_texts),
    }
    return Component(
        name=model.label,
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref=f"model {model.label}",  # The model itself may be a released target.
        licenses=_licenses(model.license),
        purl=_package_url(origin.uri) if origin else None,
        external_references=_references(origin, model.license_link),
        components=[
            _material(each, model.label)
            for one in (*([source] if source else []), *model.adapters)
            for each in one.files
        ],
        properties=_properties({**said, **_origin_properties(origin)}),
    )


def _origin_properties(origin: Material | None) -> dict[str, str]:
    if origin is None:
        return {}
    return {"source": origin.uri or origin.name, **{f"source-{each.algorithm}": each.value for each in origin.digests}}


def _references(origin: Material | None, license_link: str) -> list[ExternalReference]:
    from cyclonedx.model import ExternalReference, ExternalReferenceType, XsUri

    found = []
    if origin is not None and origin.uri:
        found.append(ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(origin.uri)))
    if license_link:
        found.append(ExternalReference(type=ExternalReferenceType.LICENSE, url=XsUri(license_link)))
    return found


def _material(material: Material, owner: str) -> Component:
    from cyclonedx.model.component import Component, ComponentType

    return Component(
        name=material.name,
        type=ComponentType.DATA,
        bom_ref=f"{owner} {material.name}",
        hashes=_hashes(material.digests),
    )


def _scheme(name: str) -> Component:
    from cyclonedx.model.component import Component, ComponentType

    return Component(
        name=name,
        type=ComponentType.DATA,
        bom_ref=f"quantization {name}",
        description=f"The quantization scheme {name}, by MLC-LLM's name",
    )


def _toolchain(toolchain: ToolchainInfo) -> Component:
    from cyclonedx.model.component import Component, ComponentType

    return Component(
        name=toolchain.name,
        version=toolchain.version or None,
        type=ComponentType.APPLICATION,
        bom_ref=f"toolchain {toolchain.name}",
        components=[_distribution(each, toolchain.name) for each in toolchain.distributions],
        properties=_properties({"toolchain-fingerprint": toolchain.fingerprint}),
    )


def _distribution(distribution: DistributionInfo, owner: str) -> Component:
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    return Component(
        name=distribution.name,
        version=distribution.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{owner} {distribution.name}",
        licenses=_licenses(distribution.license),
        purl=PackageURL(type="pypi", name=distribution.name, version=distribution.version),
    )


def _licenses(expression: str) -> list[LicenseExpression | DisjunctiveLicense]:
    from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
    from cyclonedx.spdx import is_supported_id

    if not expression:
        return []
    if is_supported_id(expression):
        return [DisjunctiveLicense(id=expression)]
    return [LicenseExpression(expression)]


def _hashes(digests: Iterable[Digested]) -> list[HashType]:
    from cyclonedx.model import HashAlgorithm, HashType

    known = {"sha256": HashAlgorithm.SHA_256, "blake3": HashAlgorithm.BLAKE3}
    return [HashType(alg=known[each.algorithm], content=each.value) for each in digests if each.algorithm in known]


def _package_url(uri: str) -> PackageURL | None:
    from packageurl import PackageURL

    return PackageURL.from_string(uri) if uri.startswith("pkg:") else None


def _properties(values: dict[str, str]) -> list[Property]:
    from cyclonedx.model import Property

    return [Property(name=f"{_TOOL}:{name}", value=value) for name, value in values.items() if value]
