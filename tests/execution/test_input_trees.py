"""Input folders of very many files: actions share one tree, which nothing can write to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.engine.executor import ExecutionRequest, FileEntry, OutcomeKind
from mlcbuild.execution import input_trees, layout
from mlcbuild.execution.input_trees import InputTrees, TreeFile
from mlcbuild.execution.local import LocalExecutor
from mlcbuild.execution.sandbox import landlock_version
from tests.execution.conftest import STAGES, World

needs_landlock = pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")
LEAST = 20
DEEP = "package/module7/text.txt"
PROGRAM = "#!/bin/sh\necho ran\n"


@pytest.fixture(autouse=True)
def few_files_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "LEAST_FILES", LEAST)


def confined(world: World, *, is_confined: bool = True) -> LocalExecutor:
    executor = LocalExecutor(
        world.store,
        jobs=2,
        scratch=world.scratch,
        module_paths=(STAGES,),
        sandbox=is_confined,
        hidden=(world.store.root,),
    )
    executor.start(world.outcomes.put)
    return executor


def request(world: World, *, files: int = LEAST, changed: str = "") -> ExecutionRequest:
    inputs = [world.entry(f"in/folder/package/module{number}/text.txt", f"text {number}") for number in range(files)]
    if changed:
        inputs[7] = world.entry(f"in/folder/{DEEP}", changed)
    inputs.append(world.entry("in/folder/bin/tool", PROGRAM, is_executable=True))
    return world.stage("use_folder", inputs=tuple(sorted(inputs)), arguments=(("folder", "in/folder/"),), deep=DEEP)


def told(world: World, asked: ExecutionRequest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.content(world.run(asked)))
    assert found["files"] == len(asked.inputs)
    assert found["said"] == "ran\n"
    return found


def trees(world: World) -> list[Path]:
    return sorted((world.scratch / "trees").glob("*/tree"))


@needs_landlock
def test_actions_share_a_tree_that_they_cannot_write_to(world: World) -> None:
    world.executor = confined(world)
    first, second = (told(world, request(world)) for _ in range(2))
    assert first["text"] == "text 7"
    assert first["wrote"] == []
    assert [first["real"]] == [second["real"]] == [str(path) for path in trees(world)]
    assert told(world, request(world, changed="other"))["text"] == "other", "another content is another tree"
    assert len(trees(world)) == 2


@needs_landlock
def test_the_next_build_takes_the_tree(world: World) -> None:
    for executor in (confined(world), confined(world)):
        world.executor = executor
        told(world, request(world))
        executor.close()
    assert len(trees(world)) == 1


@needs_landlock
@pytest.mark.parametrize("damage", ["more", "less", "else", "program"])
def test_a_tree_that_is_not_as_it_was_made_is_made_again(world: World, damage: str) -> None:
    world.executor = confined(world)
    told(world, request(world))
    world.executor.close()
    (tree,) = trees(world)
    file = tree / DEEP
    match damage:
        case "more":
            (tree / "sitecustomize.py").write_text("")
        case "less":
            file.unlink()
        case "else":
            file.unlink()
            file.symlink_to(tree / "package/module8/text.txt")
        case "program":
            (tree / "bin/tool").unlink()
            (tree / "bin/tool").write_text("#!/bin/sh\necho other\n")
            (tree / "bin/tool").chmod(0o755)
    world.executor = confined(world)
    assert told(world, request(world))["text"] == "text 7"


def test_small_folders_and_actions_that_may_write_anywhere_have_files_of_their_own(world: World) -> None:
    asked = request(world, files=LEAST - 2)
    for is_confined, one in ((True, asked), (False, request(world))):
        world.executor = confined(world, is_confined=is_confined)
        outcome = world.run(one)
        assert outcome.kind is OutcomeKind.SUCCEEDED or not is_confined, outcome.message
        world.executor.close()
    assert trees(world) == []


@needs_landlock
def test_a_blob_that_has_gone_is_asked_for_although_its_tree_is_there(world: World) -> None:
    world.executor = confined(world)
    asked = request(world)
    told(world, asked)
    gone: FileEntry = next(entry for entry in asked.inputs if entry.path.endswith(DEEP))
    world.store.path_of(gone.digest).unlink()
    outcome = world.run(asked)
    assert outcome.kind is OutcomeKind.INPUTS_MISSING
    assert outcome.missing == (gone.digest,)


def test_the_longest_unused_trees_are_removed_unless_a_build_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_trees, "_MOST_TREES", 2)
    (tmp_path / "blob").write_text("text")

    def made(number: int, by: InputTrees) -> Path:
        tree = by.tree_of([TreeFile(path=f"folder/{number}", file=str(tmp_path / "blob"), is_executable=False)])
        os.utime(tree.parent, (number, number))
        return tree

    holder, other = InputTrees(tmp_path / "trees"), InputTrees(tmp_path / "trees")
    held = made(1, holder)
    first = [made(number, other) for number in (2, 3)]
    other.close()
    last = made(4, other)
    assert held.exists(), "another build uses it"
    assert [tree.exists() for tree in (*first, last)] == [False, True, True]
    holder.close()
    made(5, other)
    assert not held.exists()
    assert last.exists()
