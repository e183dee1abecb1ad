"""What sources say of their licence, as ImportConfig writes it down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.compiler.models.license import stated_in_directory, stated_in_metadata, write_licenses


def card(directory: Path, text: str) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    (directory / "README.md").write_text(text)
    return written(directory)


def written(directory: Path) -> dict[str, Any]:
    write_licenses(stated_in_directory(directory), directory, directory / "out")
    found: dict[str, Any] = json.loads((directory / "out" / "stated.json").read_text())
    return found


def test_the_metadata_of_a_gguf_file_is_read() -> None:
    metadata = {"general.license": "other", "general.license.name": "terms", "general.license.link": "https://x/y"}
    stated = stated_in_metadata({**metadata, "general.name": "m"})
    assert json.loads(stated.document()) == {
        "license": ["other"],
        "name": "terms",
        "link": "https://x/y",
        "where": "the metadata general.license",
    }
    assert not stated_in_metadata({"general.license": ["", 3]})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("---\nlicense: apache-2.0\ntags: [x]\n---\n# Model\nlicense: mit\n", ["apache-2.0"]),
        ("---\nlicense:\n- mit\n- cc-by-4.0\n---\n", ["mit", "cc-by-4.0"]),
        ("\ufeff---\r\nlicense: 'mit'\r\n---\r\n", ["mit"]),
        ("# Model\nlicense: mit\n", []),
        ("---\nlicense: mit\n", []),
        ("---\nlicense: [mit\n---\n", []),
        ("---\n- license\n---\n", []),
        ("---\nlicense: {a: b}\n---\n", []),
        ("", []),
    ],
)
def test_the_first_block_of_a_model_card_is_read(text: str, names: list[str], tmp_path: Path) -> None:
    assert card(tmp_path, text)["license"] == names


def test_a_card_cannot_run_code(tmp_path: Path) -> None:
    assert card(tmp_path, '---\nlicense: !!python/object/apply:os.system ["false"]\n---\n')["license"] == []


def test_texts_of_licences_are_copied_by_their_usual_names(tmp_path: Path) -> None:
    for name in ("LICENSE", "Notice.txt", "USE_POLICY.md", "config.json"):
        (tmp_path / name).write_text(name)
    (tmp_path / "LICENSE-of-a-data-set").write_bytes(b"x" * (2 << 20))
    (tmp_path / "licenses").mkdir()
    written(tmp_path)
    texts = sorted(path.name for path in (tmp_path / "out" / "texts").iterdir())
    assert texts == ["LICENSE", "Notice.txt", "USE_POLICY.md"]


def test_a_source_that_says_nothing_has_an_empty_statement(tmp_path: Path) -> None:
    assert written(tmp_path) == {"license": [], "name": "", "link": "", "where": ""}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["stated.json"]
