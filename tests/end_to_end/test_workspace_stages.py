"""Stages of a workspace's own, through the command line: the page that teaches them, and what goes wrong."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from mlcbuild.cache import stat_cache
from mlcbuild.engine import no_op_record, outputs
from tests.end_to_end.world import PROJECT, World, is_awaited, until_there, wait_until

PAGE = PROJECT / "docs/own-rules.md"
STAGE = "counting/stages/count_words.py"
WORDS = "counting/words.py"
RULE = "counting/word_count.py"
RACY_NANOSECONDS = 50_000_000
ENDING = "error: //:opening was not built: //:opening CountWords failed\n1 action: 1 failed · 0.0 s\n"
RAN_ENDING = ENDING + "critical path 0.0 s: CountWords\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """The workspace of the page: each block whose first line is a comment with a path is that file."""
    world = World(tmp_path)
    for block in (*blocks("toml"), *blocks("text"), *blocks("python")):
        first, _, content = block.partition("\n")
        world.write(first.removeprefix("# "), content)
    return world


def edit(world: World, path: str, old: str, new: str) -> Path:
    text = (world.root / path).read_text(encoding="utf-8")
    assert text.count(old) == 1, (path, old)
    return world.write(path, text.replace(old, new))


def failure(world: World) -> str:
    """What is said of a build that fails by itself and leaves nothing, less its ending."""
    done = world.build()
    assert (done.code, done.out) == (1, ""), done.err
    assert done.actions == {"failed": 1}
    assert world.verify() == 0
    assert not world.output("opening").exists()
    prefix = "[1/1] //:opening CountWords failed"
    ending = RAN_ENDING if "critical path" in done.err else ENDING
    assert done.err.startswith(prefix)
    assert done.err.endswith(ending)
    return done.err.removeprefix(prefix).removesuffix(ending)


def test_a_build_writes_nothing_between_the_sources(world: World) -> None:
    done = world.process("build", "//:opening")
    assert (done.code, done.out) == (0, "mlcbuild-out/default/opening/count.json\n"), done.err
    assert not list(world.root.rglob("__pycache__"))
    assert world.verify() == 1


def test_edits_rerun_what_they_mean_something_to(world: World) -> None:
    world.write(
        "BUILD.toml", (world.root / "BUILD.toml").read_text() + '[[upper]]\nname = "upper"\ntext = ":opening"\n'
    )
    rule = (world.root / RULE).read_text()
    rule = rule.replace('"word_count"', '"upper"').replace(
        "counting.stages.count_words:run", "counting.stages.upper:run"
    )
    rule = rule.replace('parameters={"least": target.integer("least")},', "").replace('"CountWords"', '"Upper"')
    world.write("counting/upper.py", rule)
    edit(world, "BUILD.toml", '"//counting:word_count.py"', '"//counting:word_count.py", "//counting:upper.py"')
    world.write(
        "counting/stages/upper.py", "def run(*, text, count):\n    count.write_text(text.read_text().upper())\n"
    )
    assert world.build().actions == {"executed_local": 2}
    assert world.build().actions == {"up_to_date": 2}

    edit(world, WORDS, "def words_of", "# A comment.\ndef words_of")
    edit(world, STAGE, '"""`text` → `count`', '"""Documented anew. `text` → `count`')
    edit(world, RULE, 'doc="Counts', 'doc="It counts')
    assert world.build().actions == {"up_to_date": 2}

    edit(world, WORDS, ".lower()", ".casefold()")
    assert world.build().actions == {"executed_local": 1, "up_to_date": 1}, "the same bytes stop the rebuild"
    edit(world, WORDS, "casefold", "upper")
    assert world.build().actions == {"executed_local": 2}
    assert world.output("opening/count.json").read_text() == '{"AND": 2, "I": 2, "LITTLE": 2, "ME": 2, "THE": 2}\n'
    edit(world, "counting/stages/upper.py", "upper()", "lower()")
    assert world.build().actions == {"executed_local": 1, "up_to_date": 1}
    edit(world, WORDS, "upper", "lower")
    assert world.build().actions["disk_hits"] == 1, "a stage that is as it was has its old key"
    world.verify()


def test_a_workspace_elsewhere_has_the_same_keys(world: World) -> None:
    assert world.build().actions == {"executed_local": 1}
    shutil.copytree(
        world.root, world.folder / "a longer name", ignore=shutil.ignore_patterns(".mlcbuild", "mlcbuild-out")
    )
    other = World(world.folder, name="a longer name")
    assert other.build().actions == {"disk_hits": 1}
    assert other.output("opening/count.json").read_bytes() == world.output("opening/count.json").read_bytes()


def test_the_no_op_check_sees_every_edit_of_a_stages_code(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (stat_cache, outputs, no_op_record):
        monkeypatch.setattr(module, "RACY_NANOSECONDS", RACY_NANOSECONDS)
    records = world.root / ".mlcbuild/no-op"

    def make_no_op_record() -> None:
        for _ in range(3):
            assert world.mlcbuild("build", "//:opening").code == 0
            time.sleep(2e-9 * RACY_NANOSECONDS)
        assert list(records.iterdir()), "it is known to have nothing to do"
        assert world.mlcbuild("build", "//:opening").err.startswith("1 action: 1 up to date")

    make_no_op_record()
    edit(world, WORDS, ".lower()", ".upper()")
    assert world.mlcbuild("build", "//:opening", "-v").err.startswith("[1/1] //:opening CountWords · ")
    make_no_op_record()
    world.write("counting/__init__.py", "")
    assert world.mlcbuild("build", "//:opening", "-v").err.startswith("[1/1] //:opening CountWords · "), (
        "a package has code"
    )
    make_no_op_record()
    world.write("collections.py", "")
    done = world.mlcbuild("build", "//:opening")
    assert (done.code, "rename collections.py" in done.err) == (1, True), done.err


# Mistakes


def test_a_module_that_is_not_there_is_told(world: World) -> None:
    edit(world, RULE, "stages.count_words:run", "stages.cuont_words:run")
    assert failure(world) == (
        ": there is no module counting.stages.cuont_words: the workspace has no counting/stages/cuont_words.py\n"
        '    counting/stages/ has: count_words.py        did you mean "count_words.py"?\n'
        "    a module is named by its path from the workspace's root, with dots: the name of a/b.py is a.b\n"
    )


@pytest.mark.parametrize(
    "name", ["counting/stages/count_words.py:run", "counting.stages.count_words", "a.b.py:run", ":run"]
)
def test_a_name_of_another_form_is_told_with_its_target(world: World, name: str) -> None:
    edit(world, RULE, "counting.stages.count_words:run", name)
    done = world.build()
    assert done.code == 7
    assert done.err == (
        f'BUILD.toml:6:8: "{name}" is no stage function of CountWords in //:opening\n'
        "  write package.module:function; run of text/stages/count.py is text.stages.count:run\n"
    )


def test_a_toolchain_that_is_not_there_is_told_with_the_action_and_those_that_are(world: World) -> None:
    edit(world, "counting/word_count.py", "parameters=", "toolchains=('gcc',),\n        parameters=")
    done = world.build()
    assert done.code == 1
    assert done.err.startswith('error: unknown toolchain "gcc" of //:opening CountWords\n  known: cross_ld, '), done.err


def test_a_function_that_is_not_there_is_told_with_those_that_are(world: World) -> None:
    edit(world, RULE, "count_words:run", "count_words:rnu")
    assert failure(world) == (
        " after 0.0 s: the module counting.stages.count_words has no function rnu\n    it has: run\n"
    )


def test_arguments_that_do_not_fit_are_told_from_both_sides(world: World) -> None:
    edit(world, STAGE, "least: int", "most: int")
    assert failure(world) == (
        " after 0.0 s: counting.stages.count_words:run cannot be called: missing a required argument: 'most'\n"
        "    it takes: text, count, most\n"
        "    the rule gives: count, least, text\n"
    )


@pytest.mark.parametrize("path", [STAGE, WORDS])
def test_a_syntax_error_is_told_with_its_place(world: World, path: str) -> None:
    lines = len(world.write(path, (world.root / path).read_text() + "x = = 1\n").read_text().splitlines())
    module = path.removesuffix(".py").replace("/", ".")
    assert failure(world) == f": {path}:{lines}:5: the module {module} is not valid Python: invalid syntax\n"


def test_a_stage_error_is_its_message_alone(world: World) -> None:
    world.write("opening.txt", "- - -\n")
    assert failure(world) == " after 0.0 s: opening.txt holds no word\n    name a text that does\n"


def test_another_exception_is_told_with_a_traceback_of_the_users_code(world: World) -> None:
    edit(world, WORDS, "return re.findall", "assert text.isascii(), 'not ASCII'\n    return re.findall")
    world.write("opening.txt", "é\n")
    told = failure(world)
    first, *log = told.splitlines()
    assert first == " after 0.0 s: AssertionError: not ASCII"
    assert any(f'{world.root}/{STAGE}", line ' in line for line in log), told
    assert any(f'{world.root}/{WORDS}", line 9, in words_of' in line for line in log), told
    assert not any(str(PROJECT) in line or "importlib" in line for line in log), told
    assert "opening.txt" not in told


def test_an_exception_as_a_module_is_imported_is_told_alike(world: World) -> None:
    edit(world, WORDS, "import re\n", "import re\n\nPATTERN = re.compile('(')\n")
    told = failure(world)
    assert told.startswith(" after 0.0 s: error: missing ), unterminated subpattern at position 0\n")
    log = (world.root / ".mlcbuild/logs/opening/CountWords.log").read_text()
    files = re.findall(r'^  File "(.+)", line \d+, in <module>$', log, re.MULTILINE)
    assert files == [f"{world.root}/{STAGE}", f"{world.root}/{WORDS}"], log
    assert f'{world.root}/{WORDS}", line 7, in <module>' in log
    assert "importlib" not in log
    assert str(PROJECT) not in log


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed with SIGSEGV; its log follows"),
        ("import ctypes; ctypes.string_at(0)", "crashed with SIGSEGV; its log follows"),
        ("import os; os.abort()", "crashed with SIGABRT; its log follows"),
        ("import os; os._exit(3)", "ended with exit code 3 before the stage returned"),
        ("raise SystemExit(2)", "SystemExit: 2"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: (no message)"),
        ("import importlib; importlib.import_module('counting.' + 'absent')", "ModuleNotFoundError: No module named"),
        ("import torch", "ModuleNotFoundError: No module named 'torch' (hidden from actions)"),
        ("pass", "did not make the declared output 'out/count.json'"),
    ],
)
def test_a_stage_that_ends_badly_is_its_actions_failure(world: World, code: str, message: str) -> None:
    edit(
        world,
        STAGE,
        "    words = words_of",
        f"    print('so far', flush=True)\n    {code}; return\n    words = words_of",
    )
    told = failure(world)
    assert told.startswith(f" after 0.0 s: {message}"), told
    assert "  │ so far\n" in told
    if "SIG" in message:
        assert f'{world.root}/{STAGE}", line ' in told, "where it was in Python"
    edit(world, STAGE, f"    {code}; return\n", "")
    assert world.build().actions == {"executed_local": 1}, "no harm was done"


# What a stage cannot load


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            "counting.secret",
            "loaded counting.secret, which is not in its key\n"
            "    import it with an import statement at the top of a module, by its full name\n",
        ),
        (
            "elsewhere.secret",
            "ModuleNotFoundError: No module named 'elsewhere'\n"
            "    the workspace has elsewhere, but it is not in the stage's key\n"
            "    import it with an import statement at the top of a module, by its full name\n",
        ),
    ],
)
def test_a_module_that_the_key_does_not_count_fails_the_action(world: World, module: str, message: str) -> None:
    world.write(module.replace(".", "/") + ".py", "SECRET = 1\n")
    name = " + ".join(map(repr, module))
    edit(world, STAGE, "    words = words_of", f"    __import__({name})\n    words = words_of")
    assert failure(world).startswith(f" after 0.0 s: {message}")
    edit(world, STAGE, name, repr(module))
    assert world.build().actions == {"executed_local": 1}


def test_folders_of_the_workspace_are_no_modules_for_others(world: World) -> None:
    """What an installed library finds does not depend on which folders the workspace has."""
    world.write("models/config.py", "")
    probe = "import importlib.util\n    assert importlib.util.find_spec('mod' + 'els') is None\n"
    edit(world, STAGE, "    words = words_of", f"    {probe}    words = words_of")
    assert world.build().actions == {"executed_local": 1}


@pytest.mark.parametrize("folder", ["numpy", "json"])
def test_a_folder_named_like_another_module_is_refused(world: World, folder: str) -> None:
    shutil.move(world.root / "counting/stages", world.root / folder)
    edit(world, RULE, "counting.stages.count_words:run", f"{folder}.count_words:run")
    told = failure(world)
    assert told.startswith(f': {folder}/count_words.py: the module {folder}.count_words is ambiguous: "')
    assert told.endswith(f"    rename {folder}/\n")


def test_a_stage_of_mlcbuild_may_be_called_by_anybody_and_none_be_added(world: World) -> None:
    world.write("mlcbuild/count.py", "def run(*, text, count, least):\n    count.write_text('')\n")
    edit(world, RULE, "counting.stages.count_words:run", "mlcbuild.count:run")
    assert failure(world).startswith(": there is no module mlcbuild.count in mlcbuild\n")


# Races


@pytest.mark.parametrize(
    ("old", "new", "is_kept"),
    [(".lower()", ".upper()", False), ("import re\n", "import re  # for words\n", True)],
)
def test_code_that_changes_while_it_runs_poisons_nothing(world: World, old: str, new: str, is_kept: bool) -> None:
    marker = world.folder / "marker"
    waiting = f"    import os\n    os.system({until_there(marker)!r})\n"
    edit(world, STAGE, "    words = words_of", f"{waiting}    words = words_of")
    process = world.start("build", "//:opening")
    wait_until(lambda: is_awaited(marker), "the action")
    edit(world, WORDS, old, new)
    marker.write_text("")
    _, err = process.communicate(timeout=60)
    assert process.returncode == (0 if is_kept else 1), err
    if not is_kept:
        assert f"its code {WORDS!r} changed during the build; nothing made with it was kept: build again\n" in err
    assert world.verify() == (1 if is_kept else 0)
    assert world.build().actions == ({"up_to_date": 1} if is_kept else {"executed_local": 1})
