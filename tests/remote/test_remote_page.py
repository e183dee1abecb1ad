"""The commands of docs/remote.md, against a server on this machine; later machines find what they wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation.following import follow
from tests.documentation.worlds import commands
from tests.remote import http_server

PROJECT = Path(__file__).parents[2]


def test_the_page_of_remote_caches_works_as_it_stands(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    (tmp_path / "workspace").mkdir()
    commands(tmp_path / "workspace")
    with http_server.running() as server:
        variables = {"MLCBUILD_REMOTE": server.address, "MLCBUILD_REMOTE_ROLE": "read-write"}
        follow(PROJECT / "docs/remote.md", tmp_path, variables=variables)
    results = [path for path in server.blobs if "/ac/" in path]
    assert [path for path in results if path.startswith("/namespaces/pull/12/")], results
    assert [path for path in results if not path.startswith("/namespaces/")], "the last command pushed results"
