"""Which actions are equal by their declarations, so that targets share them in a split without timings."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.engine.action import Action, Discovery, SourceArtifact, StageCall
from mlcbuild.engine.action import Input as ActionInput
from mlcbuild.engine.declared_work import SHARE_OF_DISCOVERER, SHARE_OF_SOURCES, declared_work
from mlcbuild.engine.shards import Work


def announce(*, discovering: str, manifest: bytes) -> Discovery:
    return Discovery()


def chain(owner: str, source: str, level: int) -> list[Action]:
    """An export of a source, and a partition of it with a parameter, which announces more."""
    export = Action(
        identifier=f"{owner} Export",
        mnemonic="Export",
        owner=owner,
        inputs=(ActionInput(path="in/config.json", artifact=SourceArtifact(path=source)),),
        outputs=("out/module.json",),
        command=StageCall(function="stages:export"),
    )
    partition = Action(
        identifier=f"{owner} Partition",
        mnemonic="Partition",
        owner=owner,
        inputs=(ActionInput(path="in/module.json", artifact=export.output("out/module.json")),),
        outputs=("out/manifest.json",),
        command=StageCall(function="stages:partition", parameters=(("level", level),)),
        manifest="out/manifest.json",
        discoverer=announce,
    )
    return [export, partition]


def work(root: Path, *chains: list[Action]) -> Work:
    return declared_work(
        {actions[-1].owner: [actions[-1].output("out/manifest.json")] for actions in chains},
        [action for actions in chains for action in actions],
        root=root,
        seconds_of=lambda _: 1.0,
        announced_seconds_of=lambda _: 10.0,
    )


def shared(found: Work, one: str, other: str) -> list[str]:
    return sorted(name.split()[0] for name in found.needs[one] & found.needs[other])


def test_equal_declarations_are_one_action_whoever_owns_them(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    found = work(tmp_path, chain("//:a", "a.json", 1), chain("//:b", "a.json", 1), chain("//:c", "a.json", 2))
    assert shared(found, "//:a", "//:b") == ["Export", "Partition", *3 * ["announced"]]
    assert shared(found, "//:a", "//:c") == ["Export", "announced", "announced"]
    assert found.on_one_machine(["//:a", "//:b"]) == 12.0
    assert found.on_one_machine(found.needs) == 13.0 + 10 * (1 - SHARE_OF_SOURCES - SHARE_OF_DISCOVERER)


def test_configurations_of_equal_content_are_equal_and_other_files_are_their_paths(tmp_path: Path) -> None:
    for name in ("a.json", "b.json", "a.bin", "b.bin"):
        (tmp_path / name).write_text("{}")
    found = work(tmp_path, chain("//:a", "a.json", 1), chain("//:b", "b.json", 1))
    assert shared(found, "//:a", "//:b") == ["Export", "Partition", *3 * ["announced"]]
    found = work(tmp_path, chain("//:a", "a.bin", 1), chain("//:b", "b.bin", 1))
    assert shared(found, "//:a", "//:b") == ["announced"]
