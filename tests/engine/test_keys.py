"""A key changes when something changes that the result depends on, and never otherwise."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cache import reapi
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.engine.action import (
    Action,
    ActionDescription,
    CachePolicy,
    Discovery,
    ExecutionRequirements,
    Input,
    SourceArtifact,
    StageCall,
    ToolCall,
)
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.keys import ActionKey, Component, canonical_json, compute_key, publish, read_key

BLAKE3 = DigestFunction.BLAKE3
BLOB = BLAKE3.of_bytes(b"module")
CALL = StageCall(
    function="mlcbuild.compiler.stages.phase2:run",
    inputs=(("module", "module.json"), ("metadata", "metadata.json")),
    groups=(("signatures", "signatures/"),),
    outputs=(("module_out", "module_out.json"), ("metadata_out", "metadata_out.json")),
    parameters=(("target", {"kind": "llvm", "mcpu": "x86-64-v3"}), ("opt", "O2")),
    plugins=(("backend", "mlcbuild.compiler.backends.cpu.phase2:PASSES"),),
)
ACTION = Action(
    identifier="//models:tiny Phase2",
    mnemonic="Phase2",
    owner="//models:tiny",
    inputs=(
        Input(path="module.json", artifact=SourceArtifact(path="m.json")),
        Input(path="metadata.json", artifact=SourceArtifact(path="n.json")),
    ),
    outputs=("module_out.json", "metadata_out.json"),
    command=CALL,
    environment=(("LANG", "C"),),
    toolchains=("tvm",),
)
INPUTS = (FileEntry(path="metadata.json", digest=BLOB), FileEntry(path="module.json", digest=BLOB))
TOOLCHAINS = {"tvm": "ab" * 32, "ld": "cd" * 32}


def key_of(
    action: Action = ACTION,
    inputs: tuple[FileEntry, ...] = INPUTS,
    toolchains: dict[str, str] = TOOLCHAINS,
    implementation: str = "ef" * 32,
) -> ActionKey:
    return compute_key(action, inputs, toolchains=toolchains, implementation=implementation, function=BLAKE3)


def changed(**changes: Any) -> ActionKey:
    return key_of(dataclasses.replace(ACTION, **changes))


def recalled(**changes: Any) -> ActionKey:
    return changed(command=dataclasses.replace(CALL, **changes))


def announce(*, discovering: str, manifest: bytes) -> Discovery:
    return Discovery()


CHANGES: dict[str, Callable[[], ActionKey]] = {
    "mnemonic": lambda: changed(mnemonic="Phase3"),
    "output name": lambda: changed(outputs=("module_out.json", "metadata_out2.json")),
    "one output more": lambda: changed(outputs=("module_out.json", "metadata_out.json", "z")),
    "output becomes a directory": lambda: changed(outputs=("module_out.json", "metadata_out.json/")),
    "environment value": lambda: changed(environment=(("LANG", "C.UTF-8"),)),
    "environment name": lambda: changed(environment=(("LC_ALL", "C"),)),
    "environment gone": lambda: changed(environment=()),
    "toolchain gone": lambda: changed(toolchains=()),
    "toolchain more": lambda: changed(toolchains=("tvm", "ld")),
    "toolchain content": lambda: key_of(toolchains={**TOOLCHAINS, "tvm": "ac" * 32}),
    "implementation": lambda: key_of(implementation="ee" * 32),
    "salt": lambda: changed(salt="again"),
    "function": lambda: recalled(function="mlcbuild.compiler.stages.phase3:run"),
    "parameter value": lambda: recalled(parameters=(("target", {"kind": "llvm", "mcpu": "x86-64-v4"}), ("opt", "O2"))),
    "parameter name": lambda: recalled(parameters=(("target", CALL.parameters[0][1]), ("level", "O2"))),
    "parameter type": lambda: recalled(parameters=(("target", CALL.parameters[0][1]), ("opt", ["O2"]))),
    "argument of an input": lambda: recalled(inputs=(("mod", "module.json"), ("metadata", "metadata.json"))),
    "input as a list": lambda: recalled(inputs=(("module", ("module.json",)), ("metadata", "metadata.json"))),
    "group": lambda: recalled(groups=()),
    "plug-in": lambda: recalled(plugins=(("backend", "mlcbuild.compiler.backends.cuda.phase2:PASSES"),)),
    "plug-ins as a list": lambda: recalled(plugins=(("backend", ("mlcbuild.compiler.backends.cpu.phase2:PASSES",)),)),
    "argument of an output": lambda: recalled(outputs=(("m", "module_out.json"), CALL.outputs[1])),
    "tool instead of stage": lambda: changed(command=ToolCall(arguments=_stage_arguments())),
    "input content": lambda: key_of(inputs=(INPUTS[0], FileEntry(path="module.json", digest=BLAKE3.of_bytes(b"x")))),
    "input path": lambda: key_of(inputs=(INPUTS[0], FileEntry(path="modul.json", digest=BLOB))),
    "input executable": lambda: key_of(
        inputs=(INPUTS[0], FileEntry(path="module.json", digest=BLOB, is_executable=True))
    ),
    "input gone": lambda: key_of(inputs=INPUTS[:1]),
    "input more": lambda: key_of(inputs=(*INPUTS, FileEntry(path="z/é", digest=BLOB))),
}


def _stage_arguments() -> tuple[str, ...]:
    return reapi.Command.decode(key_of().command).arguments


@pytest.mark.parametrize("change", list(CHANGES))
def test_whatever_is_declared_counts(change: str) -> None:
    key, before = CHANGES[change](), key_of()
    assert key.digest != before.digest
    assert change == "tool instead of stage" or key.breakdown != before.breakdown


def test_all_changes_have_keys_of_their_own() -> None:
    assert len({change().digest for change in CHANGES.values()}) == len(CHANGES)


@pytest.mark.parametrize(
    "changes",
    [
        {"identifier": "other"},
        {"owner": "//other:target"},
        {"description": ActionDescription(text="says more")},
        {"requirements": ExecutionRequirements(cpus=8, timeout_seconds=3.5, execution_hints=(("threads", 4),))},
        {"cache": CachePolicy.LOCAL},
        {"manifest": "module_out.json", "discoverer": announce},
        {"inputs": ()},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_policy_and_names_for_people_do_not_count(changes: dict[str, Any]) -> None:
    assert changed(**changes).digest == key_of().digest


def test_order_of_what_has_none_does_not_count() -> None:
    target = {"mcpu": "x86-64-v3", "kind": "llvm"}
    reordered = dataclasses.replace(
        ACTION,
        outputs=tuple(reversed(ACTION.outputs)),
        environment=(),
        toolchains=("tvm", "ld", "tvm"),
        command=dataclasses.replace(
            CALL,
            inputs=tuple(reversed(CALL.inputs)),
            outputs=tuple(reversed(CALL.outputs)),
            parameters=(("opt", "O2"), ("target", target)),
        ),
    )
    plain = dataclasses.replace(ACTION, environment=(), toolchains=("ld", "tvm"))
    assert key_of(reordered, tuple(reversed(INPUTS))).digest == key_of(plain).digest


def test_an_unrelated_fingerprint_does_not_count() -> None:
    assert key_of(toolchains={"tvm": TOOLCHAINS["tvm"]}).digest == key_of().digest


def test_a_key_is_a_fixed_function_of_its_action() -> None:
    # Whoever changes this digest throws away everybody's cache: raise SCHEMA_VERSION in the same commit.
    assert str(key_of().digest) == "d8903dc6874d49bda192b80a6ecbbf67765cb527217fe461c7694323f9d162c9/391"


def test_the_action_is_said_in_the_terms_of_the_protocol() -> None:
    key = key_of()
    action, command = reapi.Action.decode(key.action), reapi.Command.decode(key.command)
    assert BLAKE3.of_bytes(key.action) == key.digest
    assert action.command_digest == BLAKE3.of_bytes(key.command)
    assert action.input_root_digest == key.directories[-1][0]
    assert action.timeout_seconds == 0
    assert action.platform is not None
    assert action.platform.properties == (("implementation", "ef" * 32), ("toolchain:tvm", "ab" * 32))
    assert command.output_paths == ("metadata_out.json", "module_out.json")
    assert command.environment == (("LANG", "C"),)
    assert command.arguments == (
        "mlcbuild-stage",
        "mlcbuild.compiler.stages.phase2:run",
        '{"groups":{"signatures":"signatures/"},"inputs":{"metadata":"metadata.json","module":"module.json"},'
        '"outputs":{"metadata_out":"metadata_out.json","module_out":"module_out.json"},'
        '"parameters":{"opt":"O2","target":{"kind":"llvm","mcpu":"x86-64-v3"}},'
        '"plugins":{"backend":"mlcbuild.compiler.backends.cpu.phase2:PASSES"}}',
    )


def test_a_tool_is_called_with_its_own_arguments() -> None:
    action = dataclasses.replace(ACTION, command=ToolCall(arguments=("tools/cc", "-o", "module_out.json")))
    key = key_of(action, implementation="")
    assert reapi.Command.decode(key.command).arguments == ("tools/cc", "-o", "module_out.json")
    assert Component("argument 1", "-o") in key.breakdown
    assert not any(component.name == "implementation" for component in key.breakdown)


# Canonical JSON

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def shape(value: Any) -> Any:
    """A value with its types: Python says that 1 == 1.0 == True, JSON does not."""
    if isinstance(value, dict):
        return ("object", tuple(sorted((name, shape(item)) for name, item in value.items())))
    if isinstance(value, list):
        return ("array", tuple(shape(item) for item in value))
    return (type(value).__name__, repr(value))


@given(json_values, json_values)
def test_equal_values_and_no_others_have_equal_texts(one: Any, other: Any) -> None:
    assert (canonical_json(one) == canonical_json(other)) == (shape(one) == shape(other))


@given(st.dictionaries(st.text(max_size=3), json_values, min_size=2, max_size=4))
def test_the_order_of_a_mapping_does_not_count(value: dict[str, Any]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), {1: "a"}, {"a": {None: 1}}, b"bytes", {1}, object(), Path("a")]
)
def test_what_json_lacks_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"must be|not a JSON value"):
        canonical_json({"nested": [value]})


def test_the_text_is_short_and_ascii() -> None:
    assert canonical_json({"b": (1, 1.0, True, None), "a": "é"}) == '{"a":"\\u00e9","b":[1,1.0,true,null]}'


# Refusals


def test_a_missing_fingerprint_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"//models:tiny Phase2: no fingerprint of the toolchain 'tvm'"):
        key_of(toolchains={})


def test_an_argument_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="given twice"):
        recalled(parameters=(("opt", "O2"), ("opt", "O3")))
    with pytest.raises(ValueError, match="environment variables"):
        changed(environment=(("A", "1"), ("A", "2")))
    with pytest.raises(ValueError, match="output paths"):
        changed(outputs=("a", "a/"))


# Breakdown and storage


def test_the_breakdown_names_every_component() -> None:
    action = dataclasses.replace(ACTION, salt="pepper")
    assert key_of(action).breakdown == (
        Component("argument metadata", '"metadata.json"'),
        Component("argument module", '"module.json"'),
        Component("environment LANG", "C"),
        Component("function", "mlcbuild.compiler.stages.phase2:run"),
        Component("group signatures", '"signatures/"'),
        Component("implementation", "ef" * 32),
        Component("input metadata.json", str(BLOB)),
        Component("input module.json", str(BLOB)),
        Component("mnemonic", "Phase2"),
        Component("output metadata_out.json", "file"),
        Component("output module_out.json", "file"),
        Component("parameter opt", '"O2"'),
        Component("parameter target", '{"kind":"llvm","mcpu":"x86-64-v3"}'),
        Component("plug-in backend", '"mlcbuild.compiler.backends.cpu.phase2:PASSES"'),
        Component("result metadata_out", '"metadata_out.json"'),
        Component("result module_out", '"module_out.json"'),
        Component("salt", "pepper"),
        Component("schema", "2"),
        Component("toolchain tvm", "ab" * 32),
    )


def test_a_long_value_is_told_by_its_digest() -> None:
    text = "x" * 5000
    components = dict(recalled(parameters=(("text", text),)).breakdown)
    assert components["parameter text"] == str(BLAKE3.of_bytes(canonical_json(text).encode()))


def test_a_published_key_is_found_again(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, BLAKE3)
    key = key_of(inputs=(*INPUTS, FileEntry(path="deep/er/é", digest=BLOB)))
    other = reapi.AnyMessage(type_url="elsewhere", value=b"kept")
    result = reapi.ActionResult(
        output_files=(reapi.OutputFile(path="module_out.json", digest=BLOB),),
        execution_metadata=reapi.ExecutedActionMetadata(worker="w", auxiliary_metadata=(other,)),
    )
    published = publish(store, store, key, result)
    assert publish(store, store, key, published) == published
    assert store.get(key.digest) == published
    assert published.output_files == result.output_files
    assert published.execution_metadata is not None
    assert published.execution_metadata.worker == "w"
    assert other in published.execution_metadata.auxiliary_metadata
    assert store.missing(digest for digest, _ in key.directories) == ()
    stored = read_key(store, store, key.digest)
    assert stored is not None
    assert stored.breakdown == key.breakdown
    assert stored.command.encode() == key.command
    assert stored.action.encode() == key.action


def test_a_key_that_was_not_published_or_lost_a_part_is_not_found(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, BLAKE3)
    key = key_of()
    assert read_key(store, store, key.digest) is None
    store.put(key.digest, reapi.ActionResult(execution_metadata=reapi.ExecutedActionMetadata(worker="w")))
    assert read_key(store, store, key.digest) is None
    publish(store, store, key, reapi.ActionResult())
    assert read_key(store, store, key.digest) is not None
    store.path_of(reapi.Action.decode(key.action).command_digest).unlink()
    assert read_key(store, store, key.digest) is None


def test_a_small_key_is_cheap() -> None:
    key_of()
    best = 1.0
    for _ in range(200):
        started = time.perf_counter()
        key_of()
        best = min(best, time.perf_counter() - started)
    # 0.08 ms on a quiet machine; the goal is 0.15 ms.
    assert best < 0.0006
