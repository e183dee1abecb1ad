"""Snapshots of a loaded and analysed workspace: an answer from one is the answer of a fresh analysis."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cache.integrity import checksum_of_bytes
from mlcbuild.cli.workspace import snapshots
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.cli.workspace.snapshots import Snapshots, _Reader
from mlcbuild.engine.no_op_record import load_no_op_record
from mlcbuild.workspace.observed import ObservedPaths
from mlcbuild.workspace.schema import AttributeKind, RuleSchema
from tests.cli.snapshot_world import RACY_SECONDS, Hits, settle, snapshot_world, write_sample, written
from tests.end_to_end.world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return snapshot_world(tmp_path, monkeypatch)


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> Hits:
    return Hits(monkeypatch)


def test_an_edited_source_file_leaves_the_snapshots_true(world: World, hits: Hits) -> None:
    settle(world, "aquery", "//...")
    for path in ("text", "folder/part"):
        world.write(path, "edited\n")
    with hits.all():
        assert "would run" in world.mlcbuild("aquery", "//...").out
    (world.root / "folder/part").unlink()
    assert "folder/part" not in world.mlcbuild("aquery", "//...").out


@pytest.mark.parametrize("arguments", [("query", "//..."), ("explain", "//:joined"), ("matrix", "//...")])
def test_commands_share_what_was_read(world: World, hits: Hits, arguments: tuple[str, ...]) -> None:
    settle(world, *arguments)
    with hits.all():
        world.mlcbuild(*arguments)


def test_other_requests_have_other_snapshots(world: World) -> None:
    settle(world, "query", "//deep:more")
    asked = [("query", "//..."), ("query", "//...", "--set", "//deep:more.srcs=[]"), ("query", "//:all")]
    answers = [world.mlcbuild(*each).out for each in asked for _ in range(2)]
    assert answers[0::2] == answers[1::2]
    assert len(set(answers)) == 2
    assert len(written(world)) >= 4


@pytest.mark.parametrize("damage", ["cut", "empty", "another form", "a bit", "another request", "a folder"])
def test_a_damaged_snapshot_counts_as_absent_and_is_replaced(world: World, hits: Hits, damage: str) -> None:
    settle(world, "query", "//...")
    answer = world.mlcbuild("query", "//...")
    (path,) = (world.root / ".mlcbuild/snapshots").iterdir()
    data = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "empty":
            path.write_bytes(b"")
        case "another form":
            path.write_bytes(data.replace(b"snapshot 2\n", b"snapshot 0\n", 1))
        case "a bit":
            path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        case "another request":
            form, _, rest = data.split(b"\n", 2)
            rest = rest.replace(path.name.encode(), b"0" * len(path.name))
            path.write_bytes(b"\n".join((form, checksum_of_bytes(rest).hex().encode(), rest)))
        case _:
            path.unlink()
            path.mkdir()
    with hits.none():
        assert world.mlcbuild("query", "//...") == answer
    if damage != "a folder":
        with hits.all():
            assert world.mlcbuild("query", "//...") == answer


class AsBefore:
    """As a pickle, what Python before 3.11.4 makes of a member of an enumeration."""

    def __init__(self, kind: object, name: str) -> None:
        self.kind, self.name = kind, name

    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (self.kind, self.name)


def test_members_of_enumerations_are_read_as_every_python_writes_them() -> None:
    member = AttributeKind.BOOLEAN
    for pickled in (member, AsBefore(AttributeKind, "BOOLEAN")):
        assert _Reader(io.BytesIO(pickle.dumps(pickled, 5))).load() is member
    for kind, name in ((AttributeKind, "mro"), (RuleSchema, "__init__")):
        with pytest.raises((pickle.UnpicklingError, KeyError)):
            _Reader(io.BytesIO(pickle.dumps(AsBefore(kind, name), 5))).load()


class Trap:
    """As a pickle, a call of a program."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.place}",)


def test_a_forged_snapshot_calls_nothing(world: World, hits: Hits, tmp_path: Path) -> None:
    settle(world, "query", "//...")
    answer = world.mlcbuild("query", "//...")
    (path,) = (world.root / ".mlcbuild/snapshots").iterdir()
    form, _, rest = path.read_bytes().split(b"\n", 2)
    rest = rest.partition(b"\n")[0] + b"\n" + pickle.dumps(Trap(tmp_path / "called"))
    path.write_bytes(b"\n".join((form, checksum_of_bytes(rest).hex().encode(), rest)))
    with hits.none():
        assert world.mlcbuild("query", "//...") == answer
    assert not (tmp_path / "called").exists()


def test_processes_at_the_same_time_answer_alike(world: World) -> None:
    settle(world, "query", "//...")
    answer = world.mlcbuild("query", "//...").out
    time.sleep(2.2)  # Processes of their own count by the real limit.
    for _ in range(2):
        shutil.rmtree(world.root / ".mlcbuild/snapshots", ignore_errors=True)
        running = [world.start("query", "//...") for _ in range(3)]
        assert [each.communicate()[0] for each in running] == [answer] * 3
        assert len(written(world)) == 1
    leftover = [path.name for path in (world.root / ".mlcbuild/snapshots").iterdir() if path.name.startswith(".")]
    assert leftover == []


def test_snapshots_are_few_and_small(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(world, "query", "//...")
    (kept,) = written(world)
    monkeypatch.setattr(snapshots, "_MOST_FILES", 3)
    for number in range(4):
        time.sleep(RACY_SECONDS)
        os.utime(world.root / ".mlcbuild/snapshots" / kept)
        world.mlcbuild("query", "//...", "--set", f"//deep:more.tags=['{number}']")
        world.mlcbuild("query", "//deep:more", "--set", f"//deep:more.srcs=['//:text', 'BUILD{number}']")
    names = written(world)
    assert len(names) <= 3
    assert kept in names, "the one that was used last"
    sizes = sorted(size for _, size in names.values())
    monkeypatch.setattr(snapshots, "_MOST_BYTES_OF_ONE", sizes[0] // 2)
    before = written(world)
    assert world.mlcbuild("query", "//deep/...").code == 0
    assert written(world) == before, "a large one is not kept"


def test_a_workspace_that_was_never_built_stays_as_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    write_sample(world)
    assert world.mlcbuild("aquery", "//...").code == 0
    assert not (world.root / ".mlcbuild").exists()


def test_clean_removes_snapshots(world: World) -> None:
    settle(world, "query", "//...")
    assert world.mlcbuild("clean").code == 0
    assert written(world) == {}


def test_what_is_read_back_equals_what_was_made(world: World, hits: Hits) -> None:
    """Also of models and libraries, whose providers have many more classes than those of commands."""
    time.sleep(2 * RACY_SECONDS)
    settle(world, "aquery", "//...")

    def opened() -> tuple[Any, Any]:
        workspace = open_workspace(world.root)
        loaded = workspace.load(["//..."], "")
        return loaded, workspace.analyse(loaded)

    opened()
    with hits.all():
        loaded, analysis = opened()
    shutil.rmtree(world.root / ".mlcbuild")
    with hits.none():
        loaded_anew, analysis_anew = opened()
    assert list(loaded.targets) == list(loaded_anew.targets)
    assert loaded.requested == loaded_anew.requested
    for before, now in zip(loaded_anew.targets.values(), loaded.targets.values(), strict=True):
        assert (before.values, before.schema, before.location) == (now.values, now.schema, now.location)
    for field in ("actions", "requested", "targets", "needs", "skipped"):
        assert getattr(analysis, field) == getattr(analysis_anew, field), field
    assert analysis.observed.read > analysis_anew.observed.read, "the program's files are known too"
    assert analysis.observed.looked_for == analysis_anew.observed.looked_for


def test_the_no_op_record_of_a_build_from_snapshots_knows_the_program(world: World) -> None:
    """Such a build imports no rule, and is not up to date any more when one is edited."""
    program = (
        "import sys\n"
        "from mlcbuild.cache import stat_cache\n"
        "from mlcbuild.cli.main import main\n"
        f"stat_cache.RACY_NANOSECONDS = {int(RACY_SECONDS * 1e9)}\n"
        "code = main(['build', '//:joined', '--jobs=1'])\n"
        "print('mlcbuild.rules.command' in sys.modules, file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    told = []
    for _ in range(8):
        time.sleep(0.5)
        shutil.rmtree(world.root / ".mlcbuild/no-op", ignore_errors=True)
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=world.root, env=world.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        told = done.stderr.splitlines()
        if told[-1] == "False":
            break
    assert told[-1] == "False", "rules were imported"
    (record,) = (world.root / ".mlcbuild/no-op").iterdir()
    request = json.loads(record.read_bytes().partition(b"\n")[2])["values"]["request"]
    known = load_no_op_record(world.root / ".mlcbuild", request)
    assert known is not None
    assert any(path.endswith("/rules/command.py") for path in known.paths)


def test_what_was_looked_for_counts_as_it_was_found(world: World) -> None:
    """A file that appears between the look and the writing of a snapshot must not make the snapshot true."""
    opened = open_workspace(world.root)
    loaded = opened.load(["//deep:more"], "")
    assert isinstance(loaded.observed, ObservedPaths)
    assert loaded.observed.looked_for["text"] != 0
    state = world.root / ".mlcbuild"
    store = Snapshots(root=world.root, state_directory=state, began_nanoseconds=time.time_ns() + 10**9)
    (world.root / "text").unlink()
    value, digest = store.recall(("a request",), lambda _: loaded)
    assert digest
    assert value is loaded
    again, _ = store.recall(("a request",), lambda _: loaded)
    assert again is loaded, "the file is gone"
    world.write("text", "there again\n")
    again, _ = store.recall(("a request",), lambda _: loaded)
    assert again is not loaded
