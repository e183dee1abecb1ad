"""Messages name inputs as users know them, not by their places in an action's directory."""

from __future__ import annotations

import pytest

from mlcbuild.engine.action import Action, DerivedArtifact, Input, SourceArtifact, ToolCall
from mlcbuild.engine.input_names import with_input_names
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import StageInput, stage_action


def named(message: str, **inputs: StageInput) -> str:
    action = stage_action(
        "//models:small ImportConfig",
        "ImportConfig",
        "stages.one:run",
        owner="//models:small",
        inputs=inputs,
        outputs={"config": "config.json"},
        parameters={},
    )
    return with_input_names(message, action)


FOLDER = FilesInfo(
    files=tuple((name, SourceArtifact(path=f"models/small/{name}")) for name in ("config.json", "1_Pooling/x.json"))
)
FETCHED = FilesInfo(files=(("", DerivedArtifact(action="//models:fetched Fetch", path="out/repository/")),))
GATHERED = FilesInfo(
    files=(
        ("config.json", SourceArtifact(path="models/a/config.json")),
        ("model.gguf", SourceArtifact(path="weights/model.gguf")),
    )
)


@pytest.mark.parametrize(
    ("given", "message", "expected"),
    [
        (FOLDER, "in/source/config.json is not JSON", "models/small/config.json is not JSON"),
        (FOLDER, 'in/source/config.json, "x": bad', 'models/small/config.json, "x": bad'),
        (FOLDER, "in/source holds no tokenizer.json", "models/small holds no tokenizer.json"),
        (FOLDER, "in/source/tokenizer.json is missing", "models/small/tokenizer.json is missing"),
        (FETCHED, "in/source holds no config.json", "//models:fetched holds no config.json"),
        (FETCHED, "in/source/a.bin is empty", "//models:fetched/a.bin is empty"),
        (GATHERED, "in/source/model.gguf and in/source", 'weights/model.gguf and "source" of //models:small'),
        (SourceArtifact(path="w/m.gguf"), "in/source/m.gguf is empty", "w/m.gguf is empty"),
        (
            DerivedArtifact(action="//w:file Fetch", path="out/m.gguf"),
            "in/source/m.gguf is empty",
            "//w:file/m.gguf is empty",
        ),
        (FOLDER, "begin/source and in/sources and min/source", "begin/source and in/sources and min/source"),
    ],
)
def test_a_message_names_inputs_as_users_know_them(given: StageInput, message: str, expected: str) -> None:
    assert named(message, source=given) == expected


def test_a_longer_path_is_not_cut_at_a_shorter_one() -> None:
    files = tuple((name, SourceArtifact(path=f"m/{name}")) for name in ("w.bin", "w.bin.index.json"))
    assert named("in/source/w.bin.index.json", source=FilesInfo(files=files)) == "m/w.bin.index.json"


def test_words_of_a_tools_message_stay_as_they_are() -> None:
    """Its inputs lie where users have put them, under any name."""
    action = Action(
        identifier="//:a Command",
        mnemonic="Command",
        owner="//:a",
        inputs=(Input(path="exit", artifact=DerivedArtifact(action="//:b Command", path="exit")),),
        outputs=("x",),
        command=ToolCall(arguments=("exit",)),
    )
    assert with_input_names("//:a Command: 'exit' ended with exit code 2", action).count("//:b") == 0
