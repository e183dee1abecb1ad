"""Workspaces with a folder and a result that is valid on one machine only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.cache_transfer.transfers import MORE
from tests.cli.remote_places import Place


@pytest.fixture
def place(place: Callable[[str], Place]) -> Callable[[str], Place]:
    def made(name: str) -> Place:
        one = place(name)
        build_file = one.root / "BUILD.toml"
        build_file.write_text(build_file.read_text() + MORE)
        return one

    return made
