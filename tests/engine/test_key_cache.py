"""When the key of the last build is used again, and when not."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.engine.action import (
    Action,
    ActionDescription,
    CachePolicy,
    ExecutionRequirements,
    Input,
    SourceArtifact,
    StageCall,
    ToolCall,
)
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.key_cache import KeyCache
from mlcbuild.engine.last_build import LastBuild
from tests.engine.random_graphs import digest_of

STAGE = StageCall(
    function="package.stage:run",
    inputs=(("a", "in"),),
    groups=(("g", "many/"),),
    outputs=(("o", "out"),),
    parameters=(("p", {"deep": [1, True, 1.0, None, "x"]}),),
)
ACTION = Action(
    identifier="a",
    mnemonic="Stage",
    owner="//a:b",
    inputs=(Input(path="in", artifact=SourceArtifact(path="s")),),
    outputs=("out",),
    command=STAGE,
    environment=(("LANG", "C"),),
    toolchains=("tvm",),
    salt="1",
)
INPUTS = (FileEntry(path="in", digest=digest_of("1")),)


@dataclass
class Code:
    digest: str = "ab" * 32
    modules: frozenset[str] = frozenset()
    distributions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass
class World:
    code: Code
    fingerprint_of_tvm: str = "cd" * 32

    def of(self, *modules: str) -> Code:
        return self.code

    def listing(self, *modules: str) -> bytes:
        return self.code.digest.encode()

    def changed(self, *modules: str) -> str:
        return ""

    def fingerprint(self, name: str) -> str:
        return self.fingerprint_of_tvm


def signature(
    action: Action = ACTION,
    inputs: tuple[FileEntry, ...] = INPUTS,
    *,
    world: World | None = None,
    function: DigestFunction = DigestFunction.BLAKE3,
) -> str:
    world = world or World(Code())
    key_cache = KeyCache(toolchains=world, implementations=world, function=function, last_build=LastBuild(None))
    key_cache(action, inputs)
    return key_cache.new_signature(action.identifier)


CHANGES: dict[str, Any] = {
    "mnemonic": "Other",
    "outputs": ("out", "more"),
    "command": ToolCall(arguments=("tool",)),
    "environment": (("LANG", "de"),),
    "toolchains": (),
    "salt": "2",
    "pinned_content": "ef" * 32,
}
STAGE_CHANGES: dict[str, Any] = {
    "function": "package.other:run",
    "inputs": (("b", "in"),),
    "groups": (),
    "outputs": (("p", "out"),),
    "parameters": (("p", {"deep": [1, 1, 1.0, None, "x"]}),),
    "plugins": (("backend", "module:BACKEND"),),
}
IRRELEVANT: dict[str, Any] = {
    "owner": "//c:d",
    "cache": CachePolicy.LOCAL,
    "requirements": ExecutionRequirements(cpus=7),
    "is_test": True,
    "description": ActionDescription(text="says more"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_is_declared_changes_the_signature(name: str) -> None:
    assert signature(replace(ACTION, **{name: CHANGES[name]})) != signature()


@pytest.mark.parametrize("name", STAGE_CHANGES)
def test_a_change_of_the_call_changes_the_signature(name: str) -> None:
    assert signature(replace(ACTION, command=replace(STAGE, **{name: STAGE_CHANGES[name]}))) != signature()


def test_every_field_of_an_action_and_of_a_stage_call_has_been_thought_of() -> None:
    elsewhere = {"identifier", "inputs", "manifest", "discoverer"}
    assert {field.name for field in fields(Action)} == {*CHANGES, *IRRELEVANT, *elsewhere}
    assert {field.name for field in fields(StageCall)} == set(STAGE_CHANGES)


@pytest.mark.parametrize("name", IRRELEVANT)
def test_policy_and_what_is_for_people_change_no_signature(name: str) -> None:
    assert signature(replace(ACTION, **{name: IRRELEVANT[name]})) == signature()


@pytest.mark.parametrize(
    "inputs",
    [
        (),
        (FileEntry(path="in2", digest=digest_of("1")),),
        (FileEntry(path="in", digest=digest_of("2")),),
        (FileEntry(path="in", digest=digest_of("1"), is_executable=True),),
    ],
)
def test_other_inputs_change_the_signature(inputs: tuple[FileEntry, ...]) -> None:
    assert signature(inputs=inputs) != signature()


def test_code_toolchains_and_digest_function_change_the_signature() -> None:
    assert signature(world=World(Code(digest="00" * 32))) != signature()
    assert signature(world=World(Code(), fingerprint_of_tvm="00" * 32)) != signature()
    assert signature(function=DigestFunction.SHA256) != signature()


def test_a_key_of_the_last_build_is_used_again_and_no_other() -> None:
    last_build, world = LastBuild(None), World(Code())
    key_cache = KeyCache(toolchains=world, implementations=world, function=DigestFunction.BLAKE3, last_build=last_build)
    key = key_cache(ACTION, INPUTS)
    last_build.remember("a", key_cache.new_signature("a"), digest_of("remembered"), None)
    assert key_cache(ACTION, INPUTS) == digest_of("remembered")
    assert key_cache.new_signature("a") == ""
    assert key_cache(replace(ACTION, salt="2"), INPUTS) not in (key, digest_of("remembered"))
    assert key_cache.take(ACTION, INPUTS, key).digest == key
