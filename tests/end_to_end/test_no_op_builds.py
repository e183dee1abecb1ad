"""A build that is known to have nothing to do without being loaded: whatever is touched, it is looked at again."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild import plugins
from mlcbuild.cache import stat_cache
from mlcbuild.cli.build import session
from mlcbuild.engine import no_op_record, outputs
from tests.end_to_end.world import HEAD, World, command

PACKAGE = Path(plugins.__file__).parent
RACY_SECONDS = 0.05
_TRIES = 40
OWN_RULES = HEAD.replace('name = "example"\n', 'name = "example"\nrules = ["//:my_rule.py"]\n')
RULE_FILE = """\
from mlcbuild.rules.rule import Rule
from mlcbuild.workspace.schema import RuleSchema
SCHEMA = RuleSchema(name="nothing", doc="Nothing.", attributes=(), provides=())
NOTHING = Rule(schema=SCHEMA, implementation=lambda _: ())
"""


@pytest.fixture
def world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for module in (stat_cache, outputs, no_op_record):
        monkeypatch.setattr(module, "RACY_NANOSECONDS", int(RACY_SECONDS * 1e9))
    world.commands(
        command("joined", "out=$1; shift; cat $* > $out", inputs=("text", "folder")), '[[filegroup]]\nname = "files"\n'
        'srcs = ["text"]\n', head=OWN_RULES,
    )  # fmt: skip
    world.write("my_rule.py", RULE_FILE)
    world.write("text", "one\n")
    world.write("folder/part", "two\n")
    return world


class Watch:
    """Counts the builds that went the long way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.long = 0
        whole = session.run_build

        def run_build(*arguments: Any, **more: Any) -> Any:
            self.long += 1
            return whole(*arguments, **more)

        monkeypatch.setattr(session, "run_build", run_build)

    def is_short(self, world: World, *arguments: str, **environment: str) -> bool:
        before = self.long
        done = world.mlcbuild("build", *(arguments or ("//...",)), **environment)
        assert done.code == 0, done.err
        return self.long == before


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def make_no_op_record(world: World, watch: Watch) -> None:
    """Build until nothing has been touched for long enough. Tests in other processes touch installed files: a second
    name of a file (`surroundings.py`) changes its stat."""
    for _ in range(_TRIES):
        if watch.is_short(world):
            return
        time.sleep(2 * RACY_SECONDS)
    pytest.fail("no build was short")


def test_the_short_way_tells_what_the_long_way_tells(world: World, watch: Watch) -> None:
    make_no_op_record(world, watch)
    short = world.mlcbuild("build", "//...")
    shutil.rmtree(world.root / ".mlcbuild/no-op")
    before = watch.long
    assert world.mlcbuild("build", "//...") == short
    assert watch.long == before + 1
    assert "1 action: 1 up to date" in short.err
    assert short.out.splitlines() == ["mlcbuild-out/default/files/text", "mlcbuild-out/default/joined/out"]


def _edit(world: World) -> None:
    world.write("text", "1.1\n")


def _edit_in_folder(world: World) -> None:
    world.write("folder/part", "2.2\n")


def _add_to_folder(world: World) -> None:
    world.write("folder/sub/part", "three\n")


def _add_package(world: World) -> None:
    world.write("deep/er/BUILD.toml", '[[filegroup]]\nname = "more"\nsrcs = ["//:text"]\n')


def _edit_package(world: World) -> None:
    content = (world.root / "BUILD.toml").read_text()
    world.write("BUILD.toml", content + '\n[[filegroup]]\nname = "more"\nsrcs = ["text"]\n')


def _edit_rule_file(world: World) -> None:
    world.write("my_rule.py", RULE_FILE + "# A comment.\n")


def _edit_output(world: World) -> None:
    path = world.output("joined/out")
    path.chmod(0o644)
    path.write_text("mine\n")


def _remove_output(world: World) -> None:
    world.output("joined/out").unlink()


def _make_executable(world: World) -> None:
    (world.root / "text").chmod(0o755)


def _remove_results(world: World) -> None:
    found = [path for path in world.store.rglob("*") if path.is_file() and "/ac/" in str(path)]
    assert found
    for path in found:
        path.unlink()


def _replace_by_link(world: World) -> None:
    other = world.folder / "elsewhere"
    other.write_text("four\n")
    (world.root / "text").unlink()
    (world.root / "text").symlink_to(other)


def _make_nested_workspace(world: World) -> None:
    world.write("folder/BUILD.toml", '[workspace]\nname = "inner"\n')


TOUCHES = (
    _edit, _edit_in_folder, _add_to_folder, _add_package, _edit_package, _edit_rule_file, _edit_output, _remove_output,
    _make_executable, _remove_results, _replace_by_link,
)  # fmt: skip


@pytest.mark.parametrize("touch", TOUCHES, ids=lambda touch: touch.__name__.strip("_"))
def test_whatever_is_touched_is_seen(world: World, watch: Watch, touch: Callable[[World], None]) -> None:
    make_no_op_record(world, watch)
    touch(world)
    assert not watch.is_short(world)
    parts = [path.read_text() for path in (world.root / "folder").rglob("*") if path.is_file()]
    assert sorted(world.output("joined/out").read_text().splitlines(True)) == sorted(
        [(world.root / "text").read_text(), *parts]
    )
    world.verify()


def test_another_request_is_another_build(world: World, watch: Watch) -> None:
    make_no_op_record(world, watch)
    assert not watch.is_short(world, "//:joined")
    assert not watch.is_short(world, "//...", HOME=str(world.folder / "other"))
    assert not watch.is_short(world, "//...", XDG_CACHE_HOME=str(world.folder / "other-cache"))
    assert not watch.is_short(world, "//...", "--disk-cache", str(world.folder / "third-cache"))


def test_a_directory_below_has_its_own_record(world: World, watch: Watch) -> None:
    make_no_op_record(world, watch)
    for _ in range(3):
        short = _in(world, watch, "folder")
        time.sleep(2 * RACY_SECONDS)
    assert short
    _make_nested_workspace(world)
    done = world.mlcbuild("-C", "folder", "build", "//...")
    assert "no targets match" in done.err


def _in(world: World, watch: Watch, folder: str) -> bool:
    before = watch.long
    assert world.mlcbuild("-C", folder, "build", "//...").code == 0
    return watch.long == before


def test_a_file_that_was_just_written_is_not_trusted(
    world: World, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_no_op_record(world, watch)
    monkeypatch.setattr(stat_cache, "RACY_NANOSECONDS", 10**12)
    world.write("text", "1.1\n")
    for _ in range(3):
        assert not watch.is_short(world)


def test_what_was_told_is_told_again(world: World, watch: Watch) -> None:
    for _ in range(3):
        done = world.mlcbuild("build", "--", "//...", "-//...")
        assert "no targets match" in done.err
        time.sleep(2 * RACY_SECONDS)


def test_a_failed_build_leaves_no_no_op_record(world: World) -> None:
    world.commands(command("bad", "exit 3"))
    for _ in range(3):
        assert world.mlcbuild("build", "//...").code == 1
        time.sleep(2 * RACY_SECONDS)


def test_a_damaged_record_is_no_record(world: World, watch: Watch) -> None:
    make_no_op_record(world, watch)
    (record,) = (path for path in (world.root / ".mlcbuild/no-op").iterdir() if b"//..." in path.read_bytes())
    content = record.read_bytes()
    record.write_bytes(content.replace(b"joined", b"JOINED"))
    assert not watch.is_short(world)


def test_a_moved_workspace_is_looked_at_anew(world: World, watch: Watch) -> None:
    make_no_op_record(world, watch)
    moved = world.folder / "moved"
    world.root.rename(moved)
    world.root = moved
    assert not watch.is_short(world)


def test_records_are_bounded(world: World) -> None:
    directory = world.folder / "state"
    for number in range(no_op_record._MOST_RECORDS + 5):
        build = no_op_record.make_no_op_record(
            world.root, request=str(number), began_nanoseconds=time.time_ns() + 10**10, observed=["text", "absent"],
            placed={}, results=[], outputs=("a",), actions=1,
        )  # fmt: skip
        assert build is not None
        no_op_record.save_no_op_record(directory, build)
        assert no_op_record.load_no_op_record(directory, str(number)) == build
    assert len(list((directory / "no-op").iterdir())) <= no_op_record._MOST_RECORDS + 1


def test_an_absent_path_that_appears_is_seen(tmp_path: Path) -> None:
    build = no_op_record.make_no_op_record(
        tmp_path, request="", began_nanoseconds=time.time_ns() + 10**10, observed=["absent"], placed={}, results=[],
        outputs=(), actions=1,
    )  # fmt: skip
    assert build is not None
    assert build.is_current(tmp_path)
    (tmp_path / "absent").touch()
    assert not build.is_current(tmp_path)


def test_results_are_asked_for(tmp_path: Path) -> None:
    result = tmp_path / "result"

    def make() -> no_op_record.NoOpRecord | None:
        return no_op_record.make_no_op_record(
            tmp_path, request="", began_nanoseconds=time.time_ns(), observed=[], placed={}, results=[str(result)],
            outputs=(), actions=1,
        )  # fmt: skip

    assert make() is None
    result.touch()
    build = make()
    assert build is not None
    assert build.is_current(tmp_path)
    os.unlink(result)  # noqa: PTH108
    assert not build.is_current(tmp_path)


def test_a_plug_in_that_is_added_is_seen(world: World, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_ROOT", str(world.folder))
    monkeypatch.setattr(plugins, "_observed", set())
    for folder in ("toolchains/entries", "rules/backends"):  # what a build lists itself
        shutil.copytree(PACKAGE / folder, world.folder / folder)
    (world.folder / "kinds").mkdir()
    listing = 'from mlcbuild.plugins import plugins_in\nplugins_in("kinds")\n'
    world.write("my_rule.py", listing + RULE_FILE)
    make_no_op_record(world, watch)
    (world.folder / "kinds" / "one.py").touch()
    assert not watch.is_short(world)
