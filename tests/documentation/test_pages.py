"""Pages that name a world are followed in it, command by command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.documentation.following import follow
from tests.documentation.page import Page
from tests.documentation.pages import pages
from tests.documentation.worlds import WORLDS
from tests.end_to_end.kernel_cache import KernelCache

FOLLOWED = [page for page in pages() if page.world]
_BUILDS = ("tiny_model", "models", "this_repository")


def parameter(page: Page) -> object:
    marks = [pytest.mark.slow] if page.world in _BUILDS else []
    return pytest.param(page, id=page.path.stem, marks=marks)


@pytest.mark.parametrize("page", [parameter(page) for page in FOLLOWED])
def test_a_page_works_as_it_stands(
    page: Page, tmp_path: Path, warm_workers: Mapping[str, str], kernel_cache: KernelCache
) -> None:
    assert page.world in WORLDS, f"{page.path.name}: no world {page.world!r}; there are {', '.join(WORLDS)}"
    root = tmp_path / "workspace"
    root.mkdir()
    WORLDS[page.world](root)
    with kernel_cache.used_by(root, tmp_path / "cache"):
        follow(page.path, tmp_path, variables=warm_workers)
