"""After an edit an answer is that of a fresh analysis, though only what the edit touched is read and analysed."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cache import stat_cache
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.cli.workspace.snapshots import Snapshots
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import RuleContext
from mlcbuild.workspace.package_reader import Package, PackageReader
from mlcbuild.workspace.toml import TomlFile
from tests.cli.snapshot_world import COMMANDS, RACY_SECONDS, Hits, replace, settle, snapshot_world, write_sample
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.end_to_end.world import World

EDITS = 24


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return snapshot_world(tmp_path, monkeypatch)


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> Hits:
    return Hits(monkeypatch)


# Edits of the sample. Some of them leave a workspace with errors, which others may mend.


def _flip(world: World, path: str, one: str, other: str) -> None:
    file = world.root / path
    text = file.read_text() if file.is_file() else ""
    replace(world, path, *((one, other) if one in text else (other, one)))


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
        lambda: replace(world, "deep/BUILD.toml", 'name = "more"\n', 'name = "more"\ntags = ["manual"]\n'),
        lambda: world.write("deep/BUILD.toml", '[[filegroup]]\nname = "more"\nsrcs = ["//:text"]\n'),
        lambda: _flip(world, "deep/BUILD.toml", '["//:text"]', '["//:folder"]'),
        lambda: _flip(world, "deep/BUILD.toml", 'name = "more"', 'name = "other"'),
        lambda: _flip(world, "deep/BUILD.toml", 'name = "more"\n', 'name = "more"\nvisibility = ["//models"]\n'),
        lambda: _flip(world, "models/BUILD.toml", "[[model]]", "# A comment.\n[[model]]"),
        lambda: _flip(world, "own.py", "files=tuple(", "files=()+tuple("),
        lambda: _flip(world, "own.py", 'name="bundle"', 'name="bundled"'),
        lambda: replace(world, "own.py", "Of what.", f"Of what {number}."),
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
    replace(world, "deep/BUILD.toml", '["//:text"]', '["//:folder"]')
    if not settled:  # The earlier snapshots serve until the edit can be told from another at the same time.
        monkeypatch.setattr(stat_cache, "RACY_NANOSECONDS", 10**15)
        assert work.of(world) == (["deep"], ["//deep:more", "//:all"])
    time.sleep(2 * RACY_SECONDS)
    assert work.of(world) == (["deep"], ["//deep:more", "//:all"])
    if settled:
        assert work.of(world) == ([], [])


def test_a_table_in_another_order_is_another_value(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pattern that fits a name decides its scheme."""
    one, other = '"model.layers.0.*" = "q0f32"', '"model.layers.*" = "q8f32_1"'
    table = f'{{ default = "q4f32_1", {one}, {other} }}'
    replace(world, "models/BUILD.toml", '"q4f32_1"', table)
    settle(world, "aquery", "//...")
    replace(world, "models/BUILD.toml", f"{one}, {other}", f"{other}, {one}")
    time.sleep(2 * RACY_SECONDS)
    work = Work(monkeypatch)
    told = world.mlcbuild("aquery", "//...")
    assert work.targets
    shutil.rmtree(world.root / ".mlcbuild/snapshots")
    assert told == world.mlcbuild("aquery", "//...")


def test_two_edits_between_two_analyses_are_both_seen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(world, "aquery", "//...")
    for path, old, new in (
        ("deep/BUILD.toml", '["//:text"]', '["//:folder"]'),
        ("models/BUILD.toml", "[[model]]", "# A comment.\n[[model]]"),
    ):
        replace(world, path, old, new)
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
    replace(world, "own.py", "for label in labels", "for label in labels[:1]")
    time.sleep(2 * RACY_SECONDS)
    assert files() == ["text"]
