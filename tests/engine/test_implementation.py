"""A stage's digest follows the meaning of its code, and nothing else of it; no code is run to find out."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from mlcbuild.engine import implementation
from mlcbuild.engine.distributions import Distributions
from mlcbuild.engine.implementation import Implementation, Implementations
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.errors import BuildError

STAGE = '''
"""A stage."""

import json

from demo.passes import fold
from demo.text import *
import alpha.parts


def run(*, module, module_out):
    """Folds."""
    from demo.late import late  # read when called

    return fold.fold(json.loads(module.read_text()), late)
'''
FOLD = '''
class Folder:
    """Documented."""

    def fold(self, module):
        # a comment
        return [item for item in module if item != 0]


def fold(module, late):
    return Folder().fold(module)
'''


class World:
    """A package `demo` below `root`, and a folder of installed distributions."""

    def __init__(self, root: Path) -> None:
        self.root = root / "source"
        self.site = root / "site"
        self.memory = root / "state" / "implementations.json"
        self.write("demo/__init__.py", "VERSION = 1\n")
        self.write("demo/stage.py", STAGE)
        self.write("demo/passes/__init__.py", "")
        self.write("demo/passes/fold.py", FOLD)
        self.write("demo/passes/other.py", "raise SystemExit('imported')\n")
        self.write("demo/text.py", "NAME = 'a'\n")
        self.write("demo/late.py", "from .passes import fold as _fold\n\nlate = 1\n")
        self.install("alpha", "1.0", "alpha", content="one")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def install(self, name: str, version: str, package: str, content: str) -> None:
        information = self.site / f"{name}-{version}.dist-info"
        information.mkdir(parents=True, exist_ok=True)
        (information / "RECORD").write_text(f"{package}/__init__.py,,\n{information.name}/RECORD,,\n")
        (self.site / package).mkdir(exist_ok=True)
        (self.site / package / "__init__.py").write_text(content)

    def implementations(self, memory: Path | None = None, *, workspace: Path | None = None) -> Implementations:
        distributions = Distributions(JsonCache(None, kind="test"), [str(self.site)])
        return Implementations(
            memory, distributions=distributions, root=self.root, packages=("demo",), workspace=workspace
        )

    def of(self, *modules: str) -> Implementation:
        return self.implementations().of(*(modules or ("demo.stage",)))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_closure_holds_what_imports_reach(world: World) -> None:
    found = world.of()
    assert found.modules == {"demo", "demo.stage", "demo.passes", "demo.passes.fold", "demo.text", "demo.late"}
    assert found.distributions == ("alpha",)
    assert len(found.digest) == 64


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("demo/stage.py", '"""A stage."""', '"""Another text\nof two lines."""'),
        ("demo/stage.py", '"""A stage."""', ""),
        ("demo/stage.py", "  # read when called", ""),
        ("demo/stage.py", "import json\n", "import json\n\n\n\n"),
        ("demo/passes/fold.py", "        # a comment\n", "\n        # é 漢\n"),
        ("demo/passes/fold.py", '    """Documented."""\n\n', ""),
        (
            "demo/passes/fold.py",
            "[item for item in module if item != 0]",
            "[\n  item for item in (module) if item != 0\n  ]",
        ),
        ("demo/text.py", "'a'", '"a"'),
        ("demo/passes/other.py", "imported", "still not imported"),
    ],
)
def test_comments_docstrings_format_and_strangers_do_not_count(world: World, path: str, old: str, new: str) -> None:
    before = world.of()
    text = (world.root / path).read_text(encoding="utf-8")
    assert old in text
    world.write(path, text.replace(old, new))
    assert world.of() == before


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("demo/stage.py", "json.loads", "json.load"),
        ("demo/passes/fold.py", "item != 0", "item != 1"),
        ("demo/text.py", "'a'", "'b'"),
        ("demo/late.py", "late = 1", "late = 2"),
        ("demo/__init__.py", "1", "2"),
        ("demo/passes/__init__.py", "", "DEBUG = True\n"),
        ("demo/passes/fold.py", "class Folder:", "class Folder(list):"),
    ],
)
def test_code_counts_wherever_it_is_reached(world: World, path: str, old: str, new: str) -> None:
    before = world.of()
    world.write(path, (world.root / path).read_text(encoding="utf-8").replace(old, new, 1))
    assert world.of().digest != before.digest


def test_a_string_in_a_body_is_no_docstring(world: World) -> None:
    world.write("demo/text.py", "NAME = 1\n'a string'\n")
    before = world.of()
    world.write("demo/text.py", "NAME = 1\n'another'\n")
    assert world.of().digest != before.digest


def test_a_module_moved_to_another_name_counts(world: World) -> None:
    before = world.of()
    world.write("demo/late2.py", (world.root / "demo/late.py").read_text())
    world.write("demo/stage.py", STAGE.replace("demo.late", "demo.late2"))
    assert world.of().digest != before.digest


def test_the_place_of_the_sources_does_not_count(tmp_path: Path) -> None:
    assert World(tmp_path / "one").of() == World(tmp_path / "two" / "deep er").of()


def test_two_functions_of_a_module_share_its_closure(world: World) -> None:
    assert world.of("demo.stage") == world.of("demo.stage")
    assert world.of("demo.late").modules == {"demo", "demo.late", "demo.passes", "demo.passes.fold"}


def test_a_plug_in_counts_with_what_it_imports_and_leaves_others_alone(world: World) -> None:
    world.write("demo/plug.py", "from demo.beside import VALUE\n\nPLUG = VALUE\n")
    world.write("demo/beside.py", "VALUE = 1\n")
    alone, both = world.of(), world.of("demo.plug", "demo.stage")
    assert both.modules == alone.modules | {"demo.plug", "demo.beside"}
    world.write("demo/beside.py", "VALUE = 2\n")
    assert world.of() == alone
    assert world.of("demo.plug", "demo.stage").digest != both.digest


def test_every_form_of_import_is_followed(world: World) -> None:
    for name in "abcdefgh":
        world.write(f"demo/forms/{name}.py", f"{name} = 1\n")
    world.write("demo/forms/__init__.py", "from . import a\n")
    world.write(
        "demo/forms/stage.py",
        textwrap.dedent(
            """
            import demo.forms.b as bee
            from .c import c
            from ..forms import d
            from importlib import import_module

            E = import_module("demo.forms.e")

            class Late:
                try:
                    from .f import f
                except ImportError:
                    f = None

                async def run(self):
                    __import__("demo.forms.g")
            """
        ),
    )
    found = world.of("demo.forms.stage")
    assert found.modules == {"demo", "demo.forms", "demo.forms.stage", *(f"demo.forms.{name}" for name in "abcdefg")}


def test_imports_for_type_checkers_alone_do_not_count(world: World) -> None:
    world.write(
        "demo/stage.py",
        "import typing\n"
        "if typing.TYPE_CHECKING:\n    import alpha\n    from demo.passes import other\n"
        "else:\n    from demo import text\n",
    )
    found = world.of()
    assert found.modules == {"demo", "demo.stage", "demo.text"}
    assert found.distributions == ()


def test_cycles_of_imports_end(world: World) -> None:
    world.write("demo/late.py", "from demo import stage\n\nlate = 1\n")
    assert "demo.late" in world.of().modules


def test_distributions_count_by_content(world: World) -> None:
    before = world.of()
    world.install("alpha", "1.0", "alpha", content="two")
    assert world.of().digest != before.digest


def test_a_distribution_that_is_not_installed_counts_as_absent(world: World) -> None:
    world.write("demo/late.py", "try:\n    import beta\nexcept ImportError:\n    beta = None\nlate = 1\n")
    before = world.of()
    assert before.distributions == ("alpha", "beta")
    world.install("beta-dist", "1", "beta", content="x")
    after = world.of()
    assert after.distributions == ("alpha", "beta-dist")
    assert after.digest != before.digest


def test_data_files_count_where_the_code_names_them(world: World) -> None:
    for path in ("demo/passes/table.json", "demo/passes/unnamed.json", "demo/passes/data/deep.txt"):
        world.write(path, "1")
    world.write("demo/text.py", "NAMES = ['table.json', 'nothing.json']\n")
    world.write("demo/passes/__init__.py", "PATH = 'data/deep.txt'\n")
    before = world.of()
    world.write("demo/passes/unnamed.json", "2")
    assert world.of() == before
    for path in ("demo/passes/table.json", "demo/passes/data/deep.txt"):
        world.write(path, "2")
        after = world.of()
        assert after.digest != before.digest
        before = after


def test_nothing_is_imported_or_run(world: World) -> None:
    world.write("demo/__init__.py", "raise SystemExit('it was run')\n")
    before = set(sys.modules)
    world.of()
    assert not {name for name in set(sys.modules) - before if name.partition(".")[0] in ("demo", "alpha")}


def test_a_source_with_a_mistake_is_told_with_its_line(world: World) -> None:
    world.write("demo/late.py", "late = 1\nlate = = 2\n")
    with pytest.raises(BuildError) as caught:
        world.of()
    assert str(caught.value).startswith(f"{world.root}/demo/late.py:2:8: the module demo.late is not valid Python")


def test_a_missing_stage_is_told(world: World) -> None:
    with pytest.raises(BuildError, match=r"no module demo\.nothing in demo"):
        world.of("demo.nothing")


# Memory


def age(world: World) -> None:
    past = time.time() - 60
    for file in world.root.rglob("*.py"):
        os.utime(file, (past, past))


def test_known_modules_are_not_parsed_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    age(world)
    first = world.implementations(world.memory)
    before = first.of("demo.stage")
    first.save()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr(implementation, "_read", refuse)
    assert world.implementations(world.memory).of("demo.stage") == before


def test_an_edit_is_seen_in_spite_of_memory(world: World) -> None:
    age(world)
    first = world.implementations(world.memory)
    before = first.of("demo.stage")
    first.save()
    world.write("demo/text.py", "NAME = 'b'\n")
    after = world.implementations(world.memory).of("demo.stage")
    assert after.digest != before.digest


def test_a_module_edited_just_now_is_not_remembered(world: World) -> None:
    first = world.implementations(world.memory)
    before = first.of("demo.stage")
    first.save()
    status = (world.root / "demo/text.py").stat()
    world.write("demo/text.py", "NAME = 'b'\n")
    os.utime(world.root / "demo/text.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert world.implementations(world.memory).of("demo.stage").digest != before.digest


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"kind":"other","values":{}}', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_memory_is_an_empty_one(world: World, content: bytes) -> None:
    before = world.of()
    world.memory.parent.mkdir()
    world.memory.write_bytes(content)
    assert world.implementations(world.memory).of("demo.stage") == before


# Our own stages


def test_our_own_stages_have_closures_without_running_them(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from mlcbuild.engine.implementation import Implementations\n"
        "found = Implementations().of('mlcbuild.compiler.stages.phase0')\n"
        "assert 'mlcbuild.compiler.stages.phase0' in found.modules, found\n"
        "assert 'apache-tvm' in found.distributions, found\n"
        "assert not {'tvm', 'numpy', 'torch', 'asyncio'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
