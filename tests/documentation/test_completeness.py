"""Every command of the documentation is run by a test, or `not_run.txt` has it with the reason.

`MLCBUILD_UPDATE_SNAPSHOTS=1 pytest tests/documentation` writes that list anew; the difference is then for the reviewer.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.documentation.page import Page
from tests.documentation.pages import PROJECT, pages

LIST = Path(__file__).parent / "not_run.txt"
PAGES = pages()
# Languages whose blocks hold no commands; all others are named here, so that none is overlooked.
NO_COMMANDS = ("text", "toml", "python", "json", "yaml", "mermaid", "make", "groovy", "html", "xml", "diff")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_every_block_says_what_it_is(page: Page) -> None:
    for block in page.blocks:
        where = f"{page.path.name}:{block.line}"
        assert block.has_commands or block.language in NO_COMMANDS, f"{where}: unknown language {block.language!r}"
        if not block.has_commands:
            hidden = [
                line
                for line in block.text.splitlines()
                if line.startswith(("$ ", "mlcbuild ")) and "COMMAND" not in line
            ]
            assert not hidden or block.file, f"{where}: commands in a block that is not marked sh or console: {hidden}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.has_commands], ids=lambda page: page.path.stem)
def test_every_command_is_run_or_says_why_not(page: Page) -> None:
    left = [block for block in page.blocks if block.has_commands and not page.reason_for(block)]
    if left:
        told = f"{page.path.name}:{left[0].line}: "
        assert page.world or page.followed_by, (
            f"{told}nothing runs this block: name a world or a test, or say why not (tests/documentation/page.py)"
        )
        assert not (page.world and page.followed_by), f"{told}a world, and another test as well"
    if page.followed_by:
        test = PROJECT / page.followed_by
        assert test.is_file(), f"{page.path.name}: no {page.followed_by}"
        text = test.read_text(encoding="utf-8")
        assert page.path.name in text, f"{page.followed_by} does not name {page.path.name}"
        assert "follow(" in text, f"{page.followed_by} follows no page"


def test_the_list_of_commands_that_are_not_run_is_complete() -> None:
    listed = []
    for page in PAGES:
        for block in page.blocks:
            if block.has_commands and (reason := page.reason_for(block)):
                commands = [line for command in block.commands() for line in command.text.splitlines() if line.strip()]
                name = page.path.relative_to(PROJECT)
                listed.append(f"{name}: {reason}\n" + "".join(f"    {line}\n" for line in commands))
    text = "\n".join(listed)
    if os.environ.get("MLCBUILD_UPDATE_SNAPSHOTS"):
        LIST.write_text(text, encoding="utf-8")
    assert LIST.read_text(encoding="utf-8") == text
