"""Which outputs are stored from an action's directory, and which are errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlcbuild.engine.executor import OutcomeKind
from mlcbuild.errors import LocalEnvironmentError

if TYPE_CHECKING:
    from tests.execution.conftest import World


def test_a_missing_output_is_named_with_what_was_made_instead(world: World) -> None:
    outcome = world.run(world.stage("nothing"))
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.message == "//t:x Stage did not make the declared output 'out.txt'\n  it made: elsewhere.txt"


def test_a_directory_is_taken_with_all_its_files_sorted_and_links_followed(world: World) -> None:
    outcome = world.run(world.stage("write_tree", output="tree/"))
    assert [(entry.path, entry.is_executable) for entry in outcome.outputs] == [
        ("tree/a.sh", True),
        ("tree/again", False),
        ("tree/b/two.txt", False),
        ("tree/c/two.txt", False),
    ]
    assert world.content(outcome, "tree/c/two.txt") == "2"


def test_an_empty_directory_is_no_failure(world: World) -> None:
    outcome = world.run(world.stage("empty_tree", output="tree/"))
    assert (outcome.kind, outcome.outputs) == (OutcomeKind.SUCCEEDED, ())


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("escaping_link", "leaves the action's directory"),
        ("absolute_link", "absolute path"),
        ("looping_link", "a directory that holds it"),
        ("pipe", "neither a file nor a directory"),
    ],
)
def test_what_cannot_be_kept_is_refused(world: World, function: str, reason: str) -> None:
    outcome = world.run(world.stage(function, output="tree/"))
    assert outcome.kind is OutcomeKind.FAILED
    assert reason in outcome.message
    assert outcome.outputs == ()


def test_a_directory_is_not_taken_for_a_file(world: World) -> None:
    outcome = world.run(world.tool("/bin/mkdir", "out.txt"))
    assert "is a directory" in outcome.message


def test_a_store_without_space_is_the_machines_fault(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *, move: bool = False) -> None:
        raise LocalEnvironmentError("no space left on the cache's disk", advice=("free some",))

    monkeypatch.setattr(world.store, "put_file", full)
    outcome = world.run(world.tool("/bin/touch", "out.txt"))
    assert outcome.kind is OutcomeKind.ENVIRONMENT
    assert outcome.message == "no space left on the cache's disk\n  free some"


def test_directories_without_write_permission_are_removed(world: World) -> None:
    assert world.content(world.run(world.stage("lock_directory"))) == "x"
    world.executor.close()
    assert list(world.scratch.glob("run-*")) == []
