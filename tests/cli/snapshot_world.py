"""A workspace of several packages and a rule of its own, and what is read back of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cache import stat_cache
from mlcbuild.cli.workspace.snapshots import Snapshots
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.end_to_end.world import World, command

RACY_SECONDS = 0.03
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


def snapshot_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
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


def replace(world: World, path: str, old: str, new: str) -> None:
    file = world.root / path
    if file.is_file():
        file.write_text(file.read_text().replace(old, new))
