"""The licence of a model: SPDX expressions, and what hubs call licences."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.engine.action import DerivedArtifact, SourceArtifact
from mlcbuild.errors import WorkspaceError
from mlcbuild.rules.licenses import UnknownLicenseError, expression_of_stated, license_expression
from mlcbuild.rules.providers import LicenseInfo

from .world import analysed, write


def model(root: Path, attributes: str) -> Path:
    text = f'[[model]]\nname = "m"\nsource = "weights"\n{attributes}'
    files = {"models/weights/model.safetensors": "", "models/TERMS.md": "terms\n", "models/BUILD.toml": text}
    return write(root, files)


def license_of(root: Path) -> LicenseInfo:
    (target,) = analysed(root, "//models:m").requested
    found = target.provided(LicenseInfo)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("written", "expression"),
    [
        ("apache-2.0", "Apache-2.0"),
        ("mit or Apache-2.0", "MIT OR Apache-2.0"),
        ("Apache-2.0 WITH LLVM-exception", "Apache-2.0 WITH LLVM-exception"),
        ("LicenseRef-llama3.1", "LicenseRef-llama3.1"),
    ],
)
def test_an_expression_is_written_as_spdx_writes_it(written: str, expression: str) -> None:
    assert license_expression(written) == expression


@pytest.mark.parametrize("written", ["llama3.1", "Apache 2.0", "MIT AND", "", "(MIT", "LicenseRef-a_b", "Apache-2"])
def test_what_is_no_expression_is_refused(written: str) -> None:
    with pytest.raises(UnknownLicenseError):
        license_expression(written)


@pytest.mark.parametrize(
    ("names", "own_name", "expression"),
    [
        ((), "", ""),
        (("apache-2.0",), "", "Apache-2.0"),
        (("llama3.1",), "", "LicenseRef-llama3.1"),
        (("Apache 2.0",), "", "Apache-2.0"),
        (("other",), "tongyi-qianwen research", "LicenseRef-tongyi-qianwen-research"),
        (("other",), "", ""),
        (("unknown",), "", ""),
        (("mit", "cc-by-4.0"), "", "MIT AND CC-BY-4.0"),
        (("mit OR apache-2.0", "gemma"), "", "(MIT OR Apache-2.0) AND LicenseRef-gemma"),
    ],
)
def test_a_statement_of_a_hub_becomes_an_expression(names: tuple[str, ...], own_name: str, expression: str) -> None:
    assert expression_of_stated(names, own_name) == expression


def test_a_wrong_expression_is_an_error_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError) as caught:
        license_of(model(tmp_path, 'license = "Apache-2"\n'))
    assert str(caught.value) == (
        'models/BUILD.toml:4:11: "Apache-2" is not an SPDX license expression in //models:m\n'
        '  write identifiers of SPDX, such as Apache-2.0, with AND, OR, WITH        did you mean "Apache-2.0"?\n'
        "  a licence that SPDX does not list is LicenseRef-NAME"
    )


def test_a_model_provides_what_its_attributes_and_its_source_say(tmp_path: Path) -> None:
    found = license_of(model(tmp_path, 'license = "apache-2.0"\nlicense_files = ["TERMS.md"]\n'))
    assert found.expression == "Apache-2.0"
    assert [artifact for _, artifact in found.files.files] == [SourceArtifact(path="models/TERMS.md")]
    assert found.stated == DerivedArtifact(action="//models:m ImportConfig", path="out/licenses/")


def test_a_licence_changes_no_action(tmp_path: Path) -> None:
    without = analysed(model(tmp_path / "a", ""), "//models:m").actions
    assert analysed(model(tmp_path / "b", 'license = "MIT"\n'), "//models:m").actions == without
