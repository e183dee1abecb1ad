"""What a release says of models: their licence, and where their weights come from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from tests.compiler.test_lora import write_adapter
from tests.compiler.tiny_models import checkpoint, write_gguf
from tests.release.documents import components, dependencies, properties, statement

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with models of one fetched GGUF file whose metadata names a licence, and of one that names none."""
    weights = write_gguf(tmp_path / "m.gguf", checkpoint(), metadata={"general.license": "apache-2.0"})
    root = tmp_path / "workspace"
    (root / "folder").mkdir(parents=True)
    write_gguf(root / "folder/m.gguf", checkpoint())
    (root / "folder/NOTICE").write_text("of the source\n")
    (root / "TERMS.txt").write_text("of the workspace\n")
    pin = hashlib.sha256(weights.read_bytes()).hexdigest()
    (root / "BUILD.toml").write_text(
        f"""\
[workspace]
name = "models"

[[local_file]]
name = "weights"
path = "{weights}"
sha256 = "{pin}"

[[model]]
name = "stated"
source = ":weights"

[[model]]
name = "silent"
source = "folder"
license_files = ["TERMS.txt"]

[[model]]
name = "declared"
source = ":weights"
license = "LicenseRef-ours"
"""
    )
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


def released(tmp_path: Path, *more: str) -> dict[str, Any]:
    """Release all models; the components of the bill of materials by reference, after its schema has accepted it."""
    labels = ("//:stated", "//:silent", "//:declared")
    assert main(["release", *labels, "--build", "--unsigned", "--to", str(tmp_path / "release"), *more]) == 0
    return components(tmp_path / "release")


def test_licences_and_sources_are_those_of_attributes_and_files(
    workspace: Path, tmp_path: Path, capsys: Capture
) -> None:
    models = released(tmp_path)
    assert models["model //:stated"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert models["model //:declared"]["licenses"] == [{"expression": "LicenseRef-ours"}]
    assert "licenses" not in models["model //:silent"]
    said = capsys.readouterr().err
    assert "warning: //:silent has no licence: neither its attribute nor its source says one" in said
    assert "warning: //:stated" not in said
    texts = sorted(path.name for path in (tmp_path / "release/licenses/silent").iterdir())
    assert texts == ["NOTICE", "TERMS.txt"]
    hashes = {each["alg"]: each["content"] for each in models["model //:stated"]["components"][0]["hashes"]}
    assert hashes["SHA-256"] == hashlib.sha256((tmp_path / "m.gguf").read_bytes()).hexdigest()
    files = {each["name"]: each for each in models["model //:silent"]["components"]}
    own = hashlib.sha256((workspace / "folder/m.gguf").read_bytes()).hexdigest()
    assert {"alg": "SHA-256", "content": own} in files["folder/m.gguf"]["hashes"]
    assert str(tmp_path) not in (tmp_path / "release/sbom.cdx.json").read_text()

    code = main(["release", "//:silent", "--unsigned", "--to", str(tmp_path / "other"), "--require-license"])
    assert code == ExitCode.ANALYSIS_FAILED
    assert "BUILD.toml:13:1: //:silent has no licence, and --require-license was given" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    assert main(["release", "//:stated", "--unsigned", "--to", str(tmp_path / "other"), "--require-license"]) == 0


def test_the_family_of_a_model_in_a_gguf_file_is_told(workspace: Path, tmp_path: Path, capsys: Capture) -> None:
    with (workspace / "BUILD.toml").open("a") as file:
        file.write('\n[[quantized_weights]]\nname = "packed"\nmodel = ":stated"\nquantization = "q4f16_1"\n')
    assert main(["release", "//:packed", "--build", "--unsigned", "--to", str(tmp_path / "release")]) == 0
    model = components(tmp_path / "release")["model //:stated"]
    assert [each["value"] for each in model["properties"] if each["name"].endswith("family")] == ["llama"]


def test_adapters_are_materials_of_the_model_that_they_are_merged_into(
    workspace: Path, tmp_path: Path, capsys: Capture
) -> None:
    write_adapter(workspace / "style")
    written = (workspace / "BUILD.toml").read_text()
    (workspace / "BUILD.toml").write_text(written.replace('source = "folder"', 'source = "folder"\nlora = ["style"]'))
    files = {each["name"]: each for each in released(tmp_path)["model //:silent"]["components"]}
    own = hashlib.sha256((workspace / "style/adapter_model.safetensors").read_bytes()).hexdigest()
    assert {"alg": "SHA-256", "content": own} in files["style/adapter_model.safetensors"]["hashes"]
    assert files.keys() >= {"style/adapter_config.json", "folder/m.gguf"}


def test_a_pattern_with_a_wildcard_releases_no_models_and_no_sources(
    workspace: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["release", "//...", "--unsigned", "--to", str(tmp_path / "release")]) == ExitCode.COMMAND_LINE
    assert "no target with files to release matches" in capsys.readouterr().err


FETCHED = {
    "https://example.com/models/m.gguf": (
        'http_file]]\nurls = ["https://me:secret@example.com/models/m.gguf?signature=secret"]'
    ),
    "s3://bucket/models/m.gguf": 's3_file]]\nurl = "s3://bucket/models/m.gguf"',
    "pkg:pypi/some-model@1.2#some/m.gguf": (
        'pypi_file]]\npackage = "Some_Model"\nversion = "1.2"\npath = "some/m.gguf"'
    ),
}


def test_fetched_weights_are_named_by_their_address_and_digest(workspace: Path, tmp_path: Path) -> None:
    assert main(["build", "//:stated"]) == 0
    before = (workspace / "BUILD.toml").read_text()
    pin = hashlib.sha256((tmp_path / "m.gguf").read_bytes()).hexdigest()
    for number, (source, declared) in enumerate(FETCHED.items()):
        # The key of a pinned file is its pin alone. So what was built from a file of this machine is what would be
        # built from the same file of another place, and nothing is fetched.
        local = f'local_file]]\nname = "weights"\npath = "{tmp_path / "m.gguf"}"'
        assert local in before
        (workspace / "BUILD.toml").write_text(before.replace(local, f'{declared}\nname = "weights"'))
        to = tmp_path / f"release{number}"
        assert main(["release", "//:stated", "--unsigned", "--to", str(to)]) == 0
        model = components(to)["model //:stated"]
        assert properties(model).items() >= {("source", source), ("source-sha256", pin)}
        assert model["externalReferences"] == [{"type": "distribution", "url": source}]
        assert model.get("purl", "") == (source if source.startswith("pkg:") else "")
        origin = dependencies(to)["//:weights"]
        assert (origin["uri"], origin["digest"]) == (source, {"sha256": pin})
        assert "secret" not in (to / "sbom.cdx.json").read_text() + json.dumps(statement(to))
