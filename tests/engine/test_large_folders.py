"""Actions that share a large folder have the keys that they would have without it, and hash it once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.engine.action import Action, DerivedArtifact, Input, ToolCall
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.keys import compute_key
from mlcbuild.engine.large_folders import FEWEST_FILES, LargeFolders
from mlcbuild.engine.nodes import ActionNode
from mlcbuild.engine.resolution import files_of

BLAKE3 = DigestFunction.BLAKE3
ENVIRONMENT = DerivedArtifact(action="//:env Install", path="out/env/")


def _digest(text: str) -> FileEntry:
    return FileEntry(path=text, digest=BLAKE3.of_bytes(text.encode()))


def _maker(count: int = FEWEST_FILES) -> ActionNode:
    node = ActionNode(
        action=Action(
            identifier=ENVIRONMENT.action,
            mnemonic="Install",
            owner="//:env",
            command=ToolCall(arguments=("x",)),
            inputs=(),
            outputs=(ENVIRONMENT.path, "out/one"),
        ),
        index=0,
        discovered_by="",
        needs=(),
    )
    names = [f"out/env/package{number % 7}/module{number}.py" for number in range(count)]
    node.outputs = tuple(_digest(name) for name in sorted([*names, "out/one"]))
    return node


def _consumer(name: str, place: str = "in/env/") -> Action:
    needs = (
        Input(path=place, artifact=ENVIRONMENT),
        Input(path="in/own", artifact=replace(ENVIRONMENT, path="out/one")),
    )
    return Action(
        identifier=f"//:{name} Run",
        mnemonic="Run",
        owner=f"//:{name}",
        command=ToolCall(arguments=("run", name)),
        inputs=needs,
        outputs=("out",),
    )


def _inputs(action: Action, maker: ActionNode) -> tuple[FileEntry, ...]:
    needs = [(item.path, item.artifact) for item in action.inputs]
    return files_of(needs, source=pytest.fail, producer=lambda _: maker)[0]


@pytest.mark.parametrize("place", ["in/env/", "in/", "e/", "in/own-env/deep/"])
@pytest.mark.parametrize("count", [FEWEST_FILES - 1, FEWEST_FILES, FEWEST_FILES + 300])
def test_keys_and_directories_are_the_same(place: str, count: int) -> None:
    maker, folders = _maker(count), LargeFolders(BLAKE3)
    for name in ("first", "second"):
        action = _consumer(name, place)
        inputs = _inputs(action, maker)
        split = folders.split(action, inputs)
        has_folder = sum(entry.path.startswith(place) for entry in inputs) >= FEWEST_FILES
        assert [folder.place for folder in split.folders] == [place] * has_folder
        whole, parted = (
            compute_key(action, inputs, toolchains={}, implementation="", function=BLAKE3, split=given)
            for given in (None, split)
        )
        assert whole.digest == parted.digest
        assert dict(whole.directories) == dict(parted.directories)


def test_a_folder_is_hashed_once_for_all_that_need_it_in_one_place() -> None:
    maker, folders = _maker(), LargeFolders(BLAKE3)
    first, second, elsewhere = (
        folders.split(action, _inputs(action, maker)).folders[0]
        for action in (_consumer("first"), _consumer("second"), _consumer("third", "other/"))
    )
    assert first is second
    assert first.root is second.root
    assert elsewhere is not first
    assert (elsewhere.root.digest, elsewhere.signature != first.signature) == (first.root.digest, True)


def test_another_file_is_another_folder() -> None:
    maker, folders, action = _maker(), LargeFolders(BLAKE3), _consumer("first")
    before = folders.split(action, _inputs(action, maker))
    assert maker.outputs is not None
    changed = replace(maker.outputs[3], digest=BLAKE3.of_bytes(b"another"))
    maker.outputs, maker.by_path = (*maker.outputs[:3], changed, *maker.outputs[4:]), None
    after = folders.split(action, _inputs(action, maker))
    assert before.folders[0].signature != after.folders[0].signature
    assert before.folders[0].root.digest != after.folders[0].root.digest


def test_a_file_in_the_place_of_a_large_folder_is_an_error() -> None:
    action = _consumer("first")
    inputs = (*_inputs(action, _maker()), _digest("in/env"))
    inputs = tuple(sorted(inputs, key=lambda entry: entry.path))
    split = LargeFolders(BLAKE3).split(action, inputs)
    with pytest.raises(ValueError, match="two inputs at one path: 'in/env'"):
        compute_key(action, inputs, toolchains={}, implementation="", function=BLAKE3, split=split)
