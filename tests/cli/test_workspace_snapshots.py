"""Snapshots of a loaded and analysed workspace: an answer from one is the answer of a fresh analysis."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cache import stat_cache
from mlcbuild.cache.integrity import checksum_of_bytes
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.workspace import snapshots
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.cli.workspace.snapshots import Snapshots
from mlcbuild.engine.no_op_record import load_no_op_record
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import RuleContext
from mlcbuild.workspace.observed import ObservedPaths
from mlcbuild.workspace.package_reader import Package, PackageReader
from mlcbuild.workspace.toml import TomlFile
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.end_to_end.world import World, command

RACY_SECONDS = 0.03
EDITS = 24
HEAD = '[workspace]\nname = "example"\nrules = ["//:own.py"]\n\n[[tool]]\nname = "sh"\npath = "/bin/sh"\n'
MODEL = (
    '[[model]]\nname = "model"\nconfig = "config.json"\n'
    '[[model_library]]\nname = "library"\nmodel = ":model"\nplatform = "@platforms//:cpu"\nquantization = "q4f32_1"\n'
)
RULE = """\
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Rule
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context):
    labels = context.target.labels("of")
    return (FilesInfo(files=tuple(each for label in labels for each in context.files(label).files)),)


OF = Attribute(name="of", kind=AttributeKind.LABEL_LIST, allow_files=True, doc="Of what.")
SCHEMA = RuleSchema(name="bundle", doc="Files.", attributes=(OF,), provides=("files",))
BUNDLE = Rule(schema=SCHEMA, implementation=implement)
"""
COMMANDS = (
    ("query", "deps(//...)", "--output", "json"),
    ("aquery", "//...", "--output", "json"),
    ("aquery", "deps(//:joined)"),
    ("explain", "//..."),
    ("build", "--dry-run", "//..."),
)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A workspace that was built, in which a file counts as settled after a few milliseconds."""
    monkeypatch.setattr(stat_cache, "RACY_NANOSECONDS", int(RACY_SECONDS * 1e9))
    world = World(tmp_path)
    write_sample(world)
    assert world.mlcbuild("build", "//:joined").code == 0
    return world


def write_sample(world: World) -> None:
    world.commands(
        command("joined", "out=$1; shift; cat $* > $out", inputs=("text", "folder", "link")),
        '[[bundle]]\nname = "all"\nof = [":joined", "folder", "//deep:more"]\n',
        head=HEAD,
    )
    for path in ("text", "folder/part", "other/part", "other/sub/part"):
        world.write(path, f"the text of {path}\n")
    (world.root / "link").symlink_to("text")
    world.write("own.py", RULE)
    world.write("deep/BUILD.toml", '[[filegroup]]\nname = "more"\nsrcs = ["//:text"]\n')
    world.write("models/BUILD.toml", MODEL)
    world.write("models/config.json", json.dumps(TINY_LLAMA))


class Hits:
    """Counts what was read back, by whether it was found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found = self.made = 0
        recall = Snapshots.recall

        def counted(of: Snapshots, request: Any, make: Any, *, made_of: Any = "") -> Any:
            before = self.made

            def counting(earlier: Any) -> Any:
                self.made += 1
                return make(earlier)

            value = recall(of, request, counting, made_of=made_of)
            self.found += self.made == before
            return value

        monkeypatch.setattr(Snapshots, "recall", counted)

    @contextmanager
    def all(self) -> Iterator[None]:
        """What runs inside reads back everything that it asks for."""
        found, made = self.found, self.made
        yield
        assert (self.made - made, self.found > found) == (0, True)

    @contextmanager
    def none(self) -> Iterator[None]:
        found, made = self.found, self.made
        yield
        assert (self.made > made, self.found - found) == (True, 0)


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> Hits:
    return Hits(monkeypatch)


def settle(world: World, *arguments: str) -> None:
    """Run a command until its snapshots are there: installed files may be touched by tests in other processes."""
    for _ in range(40):
        time.sleep(2 * RACY_SECONDS)
        before = written(world)
        world.mlcbuild(*arguments)
        if before and written(world) == before:
            return
    pytest.fail("nothing was kept")


def written(world: World) -> dict[str, tuple[int, int]]:
    folder = world.root / ".mlcbuild/snapshots"
    stats = {path.name: path.stat() for path in folder.iterdir()} if folder.is_dir() else {}
    return {name: (status.st_ino, status.st_size) for name, status in stats.items()}


# Edits of the sample. Some of them leave a workspace with errors, which others may mend.


def _replace(world: World, path: str, old: str, new: str) -> None:
    file = world.root / path
    if file.is_file():
        file.write_text(file.read_text().replace(old, new))


def _flip(world: World, path: str, one: str, other: str) -> None:
    file = world.root / path
    text = file.read_text() if file.is_file() else ""
    _replace(world, path, *((one, other) if one in text else (other, one)))


def _toggle(world: World, path: str, text: str) -> None:
    file = world.root / path
    if file.exists() or file.is_symlink():
        shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink()
    else:
        world.write(path, text)


def _relink(world: World, chance: random.Random) -> None:
    link = world.root / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(chance.choice(("text", "other", "other/sub", "nowhere")))


def _file_or_folder(world: World) -> None:
    text = world.root / "text"
    if text.is_dir():
        shutil.rmtree(text)
        world.write("text", "a file again\n")
    else:
        text.unlink(missing_ok=True)
        world.write("text/inside", "a folder\n")


def _edits(world: World, chance: random.Random) -> list[Callable[[], object]]:
    number = chance.randrange(1 << 30)
    return [
        lambda: world.write("folder/part", f"{number}\n"),
        lambda: _toggle(world, f"folder/{number % 3}", "more\n"),
        lambda: _toggle(world, f"folder/.hidden-{number % 2}", "more\n"),
        lambda: _toggle(world, "other/sub/part", "behind the link\n"),
        lambda: _toggle(world, f"new{number % 2}/BUILD.toml", '[[filegroup]]\nname = "x"\nsrcs = ["//:text"]\n'),
        lambda: _toggle(world, "deep/own/BUILD.toml", '[workspace]\nname = "another"\n'),
        lambda: _file_or_folder(world),
        lambda: _relink(world, chance),
        lambda: _toggle(world, "models/config.json", json.dumps({**TINY_LLAMA, "rms_norm_eps": 1e-5})),
        lambda: _flip(world, "models/config.json", '"hidden_act": "silu"', '"hidden_act": "unheard-of"'),
        lambda: _flip(world, "models/BUILD.toml", "q4f32_1", "q0f32"),
        lambda: _flip(world, "deep/BUILD.toml", '"//:text"', '"//:missing"'),
        lambda: _flip(world, "deep/BUILD.toml", "srcs = ", "srcs == "),
        lambda: _replace(world, "deep/BUILD.toml", 'name = "more"\n', 'name = "more"\ntags = ["manual"]\n'),
        lambda: world.write("deep/BUILD.toml", '[[filegroup]]\nname = "more"\nsrcs = ["//:text"]\n'),
        lambda: _flip(world, "deep/BUILD.toml", '["//:text"]', '["//:folder"]'),
        lambda: _flip(world, "deep/BUILD.toml", 'name = "more"', 'name = "other"'),
        lambda: _flip(world, "deep/BUILD.toml", 'name = "more"\n', 'name = "more"\nvisibility = ["//models"]\n'),
        lambda: _flip(world, "models/BUILD.toml", "[[model]]", "# A comment.\n[[model]]"),
        lambda: _flip(world, "own.py", "files=tuple(", "files=()+tuple("),
        lambda: _flip(world, "own.py", 'name="bundle"', 'name="bundled"'),
        lambda: _replace(world, "own.py", "Of what.", f"Of what {number}."),
        lambda: _flip(world, "BUILD.toml", 'name = "example"', 'name = "example"\nignore = ["deep"]'),
        lambda: _flip(world, "BUILD.toml", '"/bin/sh"', '"/bin/bash"'),
        lambda: shutil.rmtree(world.root / "mlcbuild-out", ignore_errors=True),
        lambda: write_again(world),
    ]


def write_again(world: World) -> None:
    for entry in world.root.iterdir():
        if entry.name != ".mlcbuild":
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    write_sample(world)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_after_any_edit_the_answer_is_that_of_a_fresh_analysis(
    world: World, hits: Hits, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    codes = set()
    for step in range(EDITS if seed == 0 else 10 * EDITS):
        if step:
            chance.choice(_edits(world, chance))()
        time.sleep(2 * RACY_SECONDS)
        asked = COMMANDS[step % len(COMMANDS)]
        first, again = world.mlcbuild(*asked), world.mlcbuild(*asked)
        with monkeypatch.context() as without:
            without.setattr(Snapshots, "recall", lambda _self, _request, make, **_: (make(None), ""))
            fresh = world.mlcbuild(*asked)
        assert (first, again) == (fresh, fresh), f"step {step}: {asked}"
        codes.add(fresh.code)
    assert hits.found > EDITS / 6, "little was read back"
    assert len(codes) > 1, "no edit made an error"


class Work:
    """Which packages are read, and which targets are analysed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.packages: list[str] = []
        self.targets: list[str] = []
        read, context = PackageReader.read_package, RuleContext.__init__

        def reading(of: PackageReader, name: str, file: TomlFile) -> Package:
            self.packages.append(name)
            return read(of, name, file)

        def analysing(of: RuleContext, **values: Any) -> None:
            self.targets.append(str(values["target"].label))
            context(of, **values)

        monkeypatch.setattr(PackageReader, "read_package", reading)
        monkeypatch.setattr(RuleContext, "__init__", analysing)

    def of(self, world: World) -> tuple[list[str], list[str]]:
        self.packages, self.targets = [], []
        assert world.mlcbuild("aquery", "//...").code == 0
        return self.packages, self.targets


@pytest.mark.parametrize("settled", [True, False])
def test_an_edit_reads_its_package_and_analyses_what_needs_the_edited_targets(
    world: World, monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    world.write(
        "deep/BUILD.toml", '[[filegroup]]\nname = "more"\nsrcs = ["//:text"]\n[[filegroup]]\nname = "x"\nsrcs = []\n'
    )
    settle(world, "aquery", "//...")
    work = Work(monkeypatch)
    assert work.of(world) == ([], [])
    _replace(world, "deep/BUILD.toml", '["//:text"]', '["//:folder"]')
    if not settled:  # The earlier snapshots serve until the edit can be told from another at the same time.
        monkeypatch.setattr(stat_cache, "RACY_NANOSECONDS", 10**15)
        assert work.of(world) == (["deep"], ["//deep:more", "//:all"])
    time.sleep(2 * RACY_SECONDS)
    assert work.of(world) == (["deep"], ["//deep:more", "//:all"])
    if settled:
        assert work.of(world) == ([], [])


def test_two_edits_between_two_analyses_are_both_seen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(world, "aquery", "//...")
    for path, old, new in (
        ("deep/BUILD.toml", '["//:text"]', '["//:folder"]'),
        ("models/BUILD.toml", "[[model]]", "# A comment.\n[[model]]"),
    ):
        _replace(world, path, old, new)
        time.sleep(2 * RACY_SECONDS)
        assert world.mlcbuild("query", "//...").code == 0  # It loads, and analyses nothing.
    assert Work(monkeypatch).of(world) == ([], ["//deep:more", "//:all"])


@pytest.mark.parametrize(
    ("edited", "why"),
    [
        ('[[filegroup]]\nname = "less"\nsrcs = ["//:text"]\n', "no target or file //deep:more"),
        ('[[filegroup]]\nname = "more"\nsrcs = []\nvisibility = ["//models"]\n', "//deep:more is not visible"),
        ('[[filegroup]]\nname = "more"\nsrcs = ["//:all"]\n', "dependency cycle"),
    ],
)
def test_an_edit_that_others_see_is_checked_against_them(world: World, edited: str, why: str) -> None:
    settle(world, "aquery", "//...")
    world.write("deep/BUILD.toml", edited)
    told = world.mlcbuild("aquery", "//...")
    shutil.rmtree(world.root / ".mlcbuild/snapshots")
    assert told == world.mlcbuild("aquery", "//...")
    assert (told.code, why in told.err) == (ExitCode.ANALYSIS_FAILED, True), told.err


def test_an_edited_rule_is_analysed_anew(world: World) -> None:
    """Also where its targets are loaded as before."""
    world.write(
        "BUILD.toml", (world.root / "BUILD.toml").read_text() + '[[bundle]]\nname = "two"\nof = ["text", "link"]\n'
    )
    settle(world, "aquery", "//...")

    def files() -> list[str]:
        workspace = open_workspace(world.root)
        analysis = workspace.analyse(workspace.load(["//..."], ""))
        target = next(found for label, found in analysis.targets.items() if label.name == "two")
        provided = target.provided(FilesInfo)
        assert provided is not None
        return [path for path, _ in provided.files]

    assert files() == ["text", "link"]
    _replace(world, "own.py", "for label in labels", "for label in labels[:1]")
    time.sleep(2 * RACY_SECONDS)
    assert files() == ["text"]


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
