"""Stages of a workspace's own: whose code counts, which names they may have, and what the no-op check must look at."""

from __future__ import annotations

import os
import shutil
import textwrap
from pathlib import Path

import pytest

from mlcbuild.engine.distributions import Distributions
from mlcbuild.engine.implementation import Implementation, Implementations
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.errors import BuildError

STAGE = """
from __future__ import annotations

import json
from pathlib import Path

import alpha
import demo.tools
from text.words import words_of

from . import shared


def run(*, text: Path, count: Path) -> None:
    count.write_text(json.dumps(len(words_of(text.read_text()))) + shared.END)
"""
MODULES = {"text.stages.count", "text.stages.shared", "text.words", "text.patterns", "demo", "demo.tools"}


class World:
    """Our package `demo`, a workspace with a stage in folders without `__init__.py`, and an installed `alpha`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.write("source/demo/__init__.py", "")
        self.write("source/demo/tools.py", "TOOL = 1\n")
        self.write("workspace/text/stages/count.py", STAGE)
        self.write("workspace/text/stages/shared.py", "END = ''\n")
        self.write(
            "workspace/text/words.py", "import re\nfrom text import patterns\nwords_of = patterns.WORD.findall\n"
        )
        self.write("workspace/text/patterns.py", "import re\nWORD = re.compile('a')\n")
        self.write("workspace/text/stranger.py", "raise SystemExit('imported')\n")
        self.install("alpha", "alpha/__init__.py")

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def install(self, name: str, path: str) -> None:
        self.write(f"site/{name}-1.0.dist-info/RECORD", f"{path},,\n")
        self.write(f"site/{path}", "one = 1\n")

    def implementations(self, memory: Path | None = None) -> Implementations:
        distributions = Distributions(JsonCache(None, kind="test"), [str(self.root / "site")])
        return Implementations(
            memory,
            distributions=distributions,
            root=self.root / "source",
            packages=("demo",),
            workspace=self.workspace,
        )

    def of(self, *modules: str) -> Implementation:
        return self.implementations().of(*(modules or ("text.stages.count",)))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_closure_goes_through_the_workspace_our_package_and_distributions(world: World) -> None:
    found = world.of()
    assert found.modules == MODULES
    assert found.distributions == ("alpha",)


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("workspace/text/stages/count.py", "def run", "# a comment\ndef run"),
        ("workspace/text/words.py", "import re\n", '"""Words."""\n\nimport re\n'),
        ("workspace/text/patterns.py", "'a'", '"a"'),
        ("workspace/text/stranger.py", "imported", "still not"),
        ("source/demo/tools.py", "TOOL = 1", "TOOL = (1)  # one"),
    ],
)
def test_what_means_nothing_does_not_count(world: World, path: str, old: str, new: str) -> None:
    before = world.of()
    text = (world.root / path).read_text()
    assert old in text
    world.write(path, text.replace(old, new))
    assert world.of() == before


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("workspace/text/stages/count.py", "len(", "sum("),
        ("workspace/text/stages/shared.py", "''", "'.'"),
        ("workspace/text/patterns.py", "'a'", "'b'"),
        ("source/demo/tools.py", "1", "2"),
        ("site/alpha/__init__.py", "one", "two"),
    ],
)
def test_code_counts_wherever_it_is_reached(world: World, path: str, old: str, new: str) -> None:
    before = world.of()
    world.write(path, (world.root / path).read_text().replace(old, new, 1))
    assert world.of().digest != before.digest


def test_an_init_file_counts_once_there_is_one(world: World) -> None:
    before = world.of()
    world.write("workspace/text/__init__.py", "")
    assert world.of().modules == {*MODULES, "text"}
    assert world.of().digest != before.digest


def test_data_files_count_where_the_code_names_them(world: World) -> None:
    world.write("workspace/text/patterns.py", "NAMES = ['stop.txt', 'lists/stop.txt', 'absent.txt']\n")
    before = world.of()
    for path in ("workspace/text/stop.txt", "workspace/text/lists/stop.txt"):
        world.write(path, "the\n")
        after = world.of()
        assert after.digest != before.digest
        before = after
    world.write("workspace/text/unnamed.txt", "the\n")
    assert world.of() == before


def test_a_module_at_the_root_is_a_stage_too(world: World) -> None:
    world.write("workspace/stages.py", "NAME = 'stop.txt'\n")
    before = world.of("stages")
    assert before.modules == {"stages"}
    world.write("workspace/stop.txt", "the\n")
    assert world.of("stages").digest != before.digest


def test_the_place_of_the_workspace_does_not_count(tmp_path: Path) -> None:
    assert World(tmp_path / "one").of() == World(tmp_path / "two" / "deep er").of()


def test_our_own_modules_import_nothing_of_a_workspace(world: World) -> None:
    before = world.of("demo.tools")
    world.write("source/demo/tools.py", "import text.words\nTOOL = 1\n")
    assert world.of("demo.tools").modules == {"demo", "demo.tools"}
    world.write("source/demo/tools.py", "TOOL = 1\n")
    shutil.rmtree(world.workspace)
    assert world.of("demo.tools") == before


def test_a_folder_of_data_does_not_hide_an_installed_package(world: World) -> None:
    before = world.of()
    world.write("workspace/alpha/table.json", "1")
    assert world.of() == before


def test_a_stage_that_is_not_there_is_told_with_what_is(world: World) -> None:
    with pytest.raises(BuildError) as caught:
        world.of("text.stages.cuont")
    assert str(caught.value) == (
        "there is no module text.stages.cuont: the workspace has no text/stages/cuont.py\n"
        '  text/stages/ has: count.py, shared.py        did you mean "count.py"?\n'
        "  a module is named by its path from the workspace's root, with dots: the name of a/b.py is a.b"
    )


def test_names_of_ours_are_not_a_workspaces(world: World) -> None:
    world.write("workspace/demo/mine.py", "")
    with pytest.raises(BuildError) as caught:
        world.of("demo.mine")
    assert str(caught.value) == (
        "there is no module demo.mine in demo\n  names that begin with demo. belong to demo: "
        "put your stages into a folder of another name"
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "alpha/late.py",
            'alpha/late.py: the module alpha.late is ambiguous: "alpha" is also a package of the installed '
            "distribution alpha\n  rename alpha/",
        ),
        (
            "code.py",
            'code.py: the module code is ambiguous: "code" is also a module of Python\n  rename code.py',
        ),
        (
            "__main__.py",
            '__main__.py: the module __main__ is ambiguous: "__main__" is also a module of Python\n'
            "  rename __main__.py",
        ),
    ],
)
def test_a_name_that_another_module_has_is_refused(world: World, path: str, message: str) -> None:
    world.write(f"workspace/{path}", "")
    module = path.removesuffix(".py").replace("/", ".")
    with pytest.raises(BuildError) as as_stage:
        world.of(module)
    world.write("workspace/text/patterns.py", f"import {module}\n")
    with pytest.raises(BuildError) as as_import:
        world.of()
    assert str(as_stage.value) == str(as_import.value) == message


def test_a_workspace_that_is_installed_as_a_working_tree_shares_its_names_with_itself(world: World) -> None:
    before = world.of()
    world.install("text-tools", "__editable__.text.pth")
    world.write("site/text_tools-1.0.dist-info/top_level.txt", "text\n")
    world.write(
        "site/text-tools-1.0.dist-info/direct_url.json",
        f'{{"url": "file://{world.workspace}", "dir_info": {{"editable": true}}}}',
    )
    world.write("site/text-tools-1.0.dist-info/top_level.txt", "text\n")
    shutil.rmtree(world.root / "site/text_tools-1.0.dist-info")
    assert world.of() == before


def test_a_mistake_is_told_with_its_place_in_the_workspace(world: World) -> None:
    world.write("workspace/text/patterns.py", "import re\nWORD = = 1\n")
    with pytest.raises(BuildError) as caught:
        world.of()
    assert str(caught.value) == "text/patterns.py:2:8: the module text.patterns is not valid Python: invalid syntax"


def test_an_expression_too_deep_to_read_is_told(world: World) -> None:
    world.write("workspace/text/patterns.py", "WORD = " + "+".join(["1"] * 5000) + "\n")
    with pytest.raises(BuildError, match=r"text/patterns\.py: the module text\.patterns is not valid Python"):
        world.of()


# What the no-op check looks at, and what changes while an action runs


def test_whatever_could_change_the_answer_is_observed(world: World) -> None:
    found = world.implementations()
    found.of("text.stages.count")
    root = world.workspace
    for path in (
        "text",
        "text/__init__.py",
        "text.py",
        "text/stages",
        "text/stages/count.py",
        "text/stages/shared.py",
        "text/words.py",
        "text/patterns.py",
        "alpha",
        "alpha.py",
        "alpha/__init__.py",
        "re.py",
    ):
        assert f"{root}/{path}" in found.observed
    assert str(root) not in found.observed, "much changes at the root that is none of this"
    assert f"{root}/text/stranger.py" not in found.observed
    assert f"{world.root}/site/alpha-1.0.dist-info/RECORD" in found.observed


def test_a_change_of_meaning_after_the_digest_is_noticed(world: World) -> None:
    found = world.implementations()
    found.of("text.stages.count")
    assert found.changed("text.stages.count") == ""
    file = world.write("workspace/text/patterns.py", "import re\nWORD = re.compile('a')  # a comment\n")
    assert found.changed("text.stages.count") == ""
    os.utime(file, (1, 1))
    assert found.changed("text.stages.count") == ""
    world.write("workspace/text/patterns.py", "import re\nWORD = re.compile('b')\n")
    assert found.changed("text.stages.count") == "text/patterns.py"
    file.unlink()
    assert found.changed("text.stages.count") == "text/patterns.py"


def test_memory_spares_parsing_and_notices_changes(world: World) -> None:
    for file in world.workspace.rglob("*.py"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    memory = world.root / "state.json"
    first = world.implementations(memory)
    before = first.of("text.stages.count")
    first.save()
    again = world.implementations(memory)
    assert again.of("text.stages.count") == before
    assert again.changed("text.stages.count") == ""
    world.write("workspace/text/patterns.py", textwrap.dedent("WORD = 1\n"))
    assert again.changed("text.stages.count") == "text/patterns.py"
    assert world.implementations(memory).of("text.stages.count").digest != before.digest
