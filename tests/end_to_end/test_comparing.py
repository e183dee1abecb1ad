"""What compares two builds tells the action that is the cause, not what it brings about."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.comparing import BuiltActions, first_other_key, first_other_output
from tests.end_to_end.world import HEAD, World, command

CHAIN = (
    command("a", "cat $2 > $1", inputs=("text",)),
    command("b", "cat $3 > $1; cp $3 $2", inputs=(":a",), outputs=("copy", "more/")),
    command("c", "cat in/copy > $1", inputs=(":b",)),
)


def built(folder: Path, *tables: str, head: str = HEAD, text: str = "text\n") -> BuiltActions:
    world = World(folder)
    world.write("text", text)
    world.commands(*tables, head=head)
    events = folder / "events.json"
    done = world.build("--events", str(events))
    assert done.code == 0, done.err
    return BuiltActions.read(events, world.cache / "mlcbuild")


def test_equal_builds_have_no_difference(tmp_path: Path) -> None:
    pair = built(tmp_path / "one", *CHAIN), built(tmp_path / "other", *reversed(CHAIN))
    assert len(pair[0].actions) == 3
    assert first_other_output(*pair) == ""
    assert first_other_key(*pair) == ""


def test_an_output_is_told_with_the_action_that_first_made_it_so(tmp_path: Path) -> None:
    impure = command("b", "(cat $3; pwd) > $1; cp $3 $2", inputs=(":a",), outputs=("copy", "more/"))
    pair = [built(tmp_path / name, CHAIN[0], impure, CHAIN[2]) for name in ("one", "the other")]
    assert first_other_output(*pair).startswith("//:b Command: out/copy, line 2: ")
    assert first_other_key(*pair).startswith("//:c Command: input ")


def test_a_file_that_only_one_made_is_told(tmp_path: Path) -> None:
    impure = command("b", "pwd | grep -q other && touch out/more/late; touch out/more/file", outputs=("more/",))
    pair = [built(tmp_path / name, impure.replace("-ec", "-c")) for name in ("one", "other")]
    assert first_other_output(*pair) == "//:b Command: out/more/late, which only the second made"
    assert first_other_output(*reversed(pair)) == "//:b Command: out/more/late, which only the first made"


def test_an_executable_bit_is_told(tmp_path: Path) -> None:
    impure = command("b", "touch $1; if pwd | grep -q other; then chmod +x $1; fi")
    pair = [built(tmp_path / name, impure) for name in ("one", "other")]
    assert first_other_output(*pair) == "//:b Command: the executable bit of out/out"


def test_an_action_that_only_one_has_is_told(tmp_path: Path) -> None:
    pair = built(tmp_path / "one", *CHAIN[:2]), built(tmp_path / "other", *CHAIN)
    for tell in (first_other_output, first_other_key):
        assert tell(*pair) == "//:c Command: only the second build has this action"
        assert tell(*reversed(pair)) == "//:c Command: only the first build has this action"


def test_a_key_is_told_with_what_makes_it_another(tmp_path: Path) -> None:
    pair = [
        built(tmp_path / name, command("b", "touch $1", more=f'environment = {{ V = "{name}" }}'))
        for name in ("one", "other")
    ]
    assert first_other_key(*pair) == "//:b Command: environment V, one against other"
    assert first_other_output(*pair) == ""
