"""Without the extra `release`, an error says what to install."""

from __future__ import annotations

import sys

import pytest

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.release.bill_of_materials import bill_of_materials
from mlcbuild.release.signing import PublicKey, sign, verify

from .world import contents, new_key


def test_the_missing_package_and_the_extra_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    key = new_key()
    missing = []
    for module, call in (
        ("securesystemslib.dsse", lambda: sign(b"{}", key)),
        ("sigstore_models.bundle.v1", lambda: verify(b"{}", key.public)),
        ("cryptography.exceptions", lambda: PublicKey.parse(b"")),
        ("cyclonedx.model.bom", lambda: bill_of_materials(contents())),
    ):
        with monkeypatch.context() as context:
            context.setitem(sys.modules, module, None)
            with pytest.raises(LocalEnvironmentError) as caught:
                call()
        missing.append(caught.value.message)
        assert caught.value.advice == ("pip install 'mlcbuild[release]'",)
    signatures = "signatures of releases need the package {}, which is not installed"
    assert missing == [
        signatures.format("securesystemslib"),
        signatures.format("sigstore-models"),
        signatures.format("cryptography"),
        "a bill of materials needs the package cyclonedx-python-lib, which is not installed",
    ]
