"""Follow a page of the documentation as a reader does: every block in order, in one folder and one shell.

How a page tells what to do is in `page.py`, how its output is compared in `comparing.py`, and the folders are in
`worlds.py`. `test_pages.py` follows each page that names a world. A test that needs more than a folder (a server,
another environment) follows its page by itself, and the page names that test, `<!-- followed by: tests/… -->`:

    def test_the_page_of_ci_works_as_it_stands(tmp_path: Path) -> None:
        with bucket() as server:
            follow(PROJECT / "docs/ci.md", tmp_path, variables={"MLCBUILD_REMOTE": server.address})
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.documentation.comparing import difference
from tests.documentation.page import Block, Page, PageError, read_page
from tests.documentation.shell import Shell

_LEFT_OUT = re.compile(r"PYTHON|VIRTUAL_ENV|MLCBUILD|XDG_|GIT_|COLUMNS|TERM|NO_COLOR|FORCE_COLOR")


class PageDiffersError(AssertionError):
    """A command of a page fails, or does something else than the page says."""


def follow(page: Path, folder: Path, *, root: str = "workspace", variables: Mapping[str, str] | None = None) -> None:
    """Run the page's blocks in `folder/root`, which is made if it is absent. Raises PageDiffersError, PageError.

    Caches, settings and the home directory are in `folder`. The `mlcbuild` of this Python comes first on PATH.
    `variables` are added to the environment, and replace.
    """
    read = read_page(page)
    workspace = folder / root
    scripts = folder / "scripts"
    for path in (workspace, scripts, folder / "home"):
        path.mkdir(parents=True, exist_ok=True)
    environment = {**_environment(folder), **(variables or {})}
    with Shell(workspace, environment=environment, scripts=scripts) as shell:
        for step in read.steps:
            if read.reason_for(step):
                continue
            _follow_step(read, step, shell, workspace)


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not _LEFT_OUT.match(name)}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_CONFIG_HOME": str(folder / "settings"),
        "COLUMNS": "0",  # lines of any length, as in the pages
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
        **{f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in _GIT.items()},
    }


_GIT = {"NAME": "A Reader", "EMAIL": "reader@example.com"}


def _follow_step(page: Page, step: Block, shell: Shell, workspace: Path) -> None:
    where = f"{page.path.name}:{step.line}"
    if step.language == "hidden":
        code, printed = shell.run(step.text, stops_at_failures=True)
        if code:
            raise PageDiffersError(f"{where}: exit code {code}\n{step.text}{printed}")
    elif step.has_commands:
        _run_commands(page, step, shell)
    elif path := step.directives.get("append to"):
        with (workspace / path).open("a", encoding="utf-8") as file:
            file.write(f"\n{step.text}")
    elif path := step.directives.get("in"):
        _check_is_in(workspace / path, step.text, where)
    elif step.file:
        (workspace / step.file).parent.mkdir(parents=True, exist_ok=True)
        (workspace / step.file).write_text(step.content, encoding="utf-8")


def _run_commands(page: Page, step: Block, shell: Shell) -> None:
    try:
        commands = step.commands()
    except PageError as error:
        raise PageError(f"{page.path.name}: {error}") from None
    for command in commands:
        code, printed = shell.run(command.text, stops_at_failures=command.output is None and not command.exit_code)
        told = f"{page.path.name}:{command.line}: {command.text}"
        if code != command.exit_code:
            raise PageDiffersError(f"{told}exit code {code}, and not {command.exit_code}\n{printed}")
        if command.output is not None and (differs := difference(command.output, printed)):
            raise PageDiffersError(f"{told}{differs}")


def _check_is_in(path: Path, text: str, where: str) -> None:
    written = path.read_text(encoding="utf-8")
    at = 0
    for paragraph in re.split(r"\n\n+|^…$", text.strip(), flags=re.MULTILINE):
        if (found := written.find(paragraph.strip(), at)) < 0:
            raise PageDiffersError(
                f"{where}: not in {path.name}, or in another order:\n{paragraph}\n\nit is\n{written}"
            )
        at = found
