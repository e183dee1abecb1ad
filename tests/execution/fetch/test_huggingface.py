"""Files of a repository at a commit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlcbuild.errors import FetchError
from mlcbuild.execution.fetch import huggingface
from mlcbuild.execution.fetch.observe import observe

if TYPE_CHECKING:
    from tests.execution.fetch.conftest import Site

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {"config.json": b"{}", "model-1.safetensors": b"one", "sub/model-2.safetensors": b"two", "README.md": b"r"}
HINTS = {"repository": "owner/model", "revision": COMMIT, "files": ["config.json", "*.safetensors"]}


@pytest.fixture(autouse=True)
def _repository(sites: list[Site], monkeypatch: pytest.MonkeyPatch) -> None:
    site = sites[0]
    monkeypatch.setenv("HF_ENDPOINT", site.url)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    listing = {"siblings": [{"rfilename": name} for name in FILES]}
    site.pages[f"/api/models/owner/model/revision/{COMMIT}"] = json.dumps(listing).encode()
    for name, content in FILES.items():
        site.pages[f"/owner/model/resolve/{COMMIT}/{name}"] = content


def manifest_pin(*names: str) -> str:
    lines = "".join(f"{hashlib.sha256(FILES[name]).hexdigest()}  {name}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()


PIN = manifest_pin("config.json", "model-1.safetensors", "sub/model-2.safetensors")


def test_named_files_and_patterns_make_a_directory(tmp_path: Path) -> None:
    huggingface.run(directory=tmp_path / "m", sha256=PIN, hints=dict(HINTS))
    made = {str(path.relative_to(tmp_path / "m")) for path in (tmp_path / "m").rglob("*") if path.is_file()}
    assert made == {"config.json", "model-1.safetensors", "sub/model-2.safetensors"}
    assert (tmp_path / "m" / "sub" / "model-2.safetensors").read_bytes() == b"two"


def test_observing_gives_the_pin_of_the_manifest() -> None:
    assert observe("huggingface", HINTS) == PIN


def test_names_alone_need_no_listing(site: Site, tmp_path: Path) -> None:
    pin = manifest_pin("config.json")
    huggingface.run(directory=tmp_path / "m", sha256=pin, hints={**HINTS, "files": ["config.json"]})
    assert [path for path, _ in site.requests] == [f"/owner/model/resolve/{COMMIT}/config.json"]


def test_a_file_that_changed_is_refused_and_nothing_is_kept(site: Site, tmp_path: Path) -> None:
    site.pages[f"/owner/model/resolve/{COMMIT}/config.json"] = b"other"
    with pytest.raises(FetchError, match="is not the pinned one"):
        huggingface.run(directory=tmp_path / "m", sha256=PIN, hints=dict(HINTS))
    assert not (tmp_path / "m").exists()


def test_the_token_goes_to_the_endpoint_and_not_where_it_redirects_to(
    sites: list[Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    path = f"/owner/model/resolve/{COMMIT}/config.json"
    sites[0].redirects[path] = f"{sites[1].url}/cdn"
    sites[1].pages["/cdn"] = b"{}"
    huggingface.run(directory=tmp_path, sha256=manifest_pin("config.json"), hints={**HINTS, "files": ["config.json"]})
    assert sites[0].requests[0][1]["authorization"] == "Bearer secret"
    assert "authorization" not in sites[1].requests[0][1]


@pytest.mark.parametrize("revision", ["main", "0123456", COMMIT.upper()])
def test_a_revision_that_can_move_is_refused(revision: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="is not a commit"):
        huggingface.run(directory=tmp_path / "m", sha256=PIN, hints={**HINTS, "revision": revision})


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_a_file_cannot_leave_its_directory(name: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="not a path inside a repository"):
        huggingface.run(directory=tmp_path / "m", sha256=PIN, hints={**HINTS, "files": [name]})


def test_a_pattern_without_a_match_is_told_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="no file of owner/model matches") as raised:
        huggingface.run(directory=tmp_path / "m", sha256=PIN, hints={**HINTS, "files": ["*.gguf"]})
    assert "README.md" in str(raised.value)


def test_a_branch_is_at_a_commit(site: Site) -> None:
    site.pages["/api/models/owner/model/revision/refs%2Fpr%2F1"] = json.dumps({"sha": COMMIT}).encode()
    assert huggingface.commit({"repository": "owner/model", "branch": "refs/pr/1"}) == COMMIT


def test_an_answer_without_a_commit_is_an_error(site: Site) -> None:
    site.pages["/api/models/owner/model/revision/main"] = b"{}"
    with pytest.raises(FetchError, match=r"revision/main: names no commit"):
        huggingface.commit({"repository": "owner/model", "branch": "main"})


def test_without_a_revision_nothing_is_fetched_and_the_branch_is_named(tmp_path: Path) -> None:
    hints = {**HINTS, "revision": "", "branch": "main"}
    with pytest.raises(FetchError, match="owner/model at main has no pinned sha256"):
        huggingface.run(directory=tmp_path / "m", sha256="", hints=hints)
