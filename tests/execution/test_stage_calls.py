"""What a stage gets, and how each of its ends is reported."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.engine.executor import OutcomeKind

if TYPE_CHECKING:
    from tests.execution.conftest import World


def test_a_stage_turns_files_into_files(world: World) -> None:
    text = world.entry("in/text.txt", "ab")
    request = world.stage("repeat", inputs=(text,), arguments=(("text", "in/text.txt"),), output="o/x.txt", times=3)
    outcome = world.run(request)
    assert world.content(outcome, "o/x.txt") == "ababab"
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert outcome.run_seconds > 0


def test_arguments_arrive_as_declared_sorted_and_relative(world: World) -> None:
    inputs = tuple(
        world.entry(path, path) for path in ("g/n.txt", "g/m.txt", "one.txt", "s/b.txt", "s/a.txt", "tree/x/y.txt")
    )
    request = world.stage(
        "describe",
        inputs=tuple(sorted(inputs)),
        arguments=(("one", "one.txt"), ("several", ("s/b.txt", "s/a.txt")), ("tree", "tree/")),
        groups=(("members", "g/"),),
    )
    assert json.loads(world.content(world.run(request))) == {
        "one": "one.txt",
        "several": ["s/a.txt", "s/b.txt"],
        "tree": ["tree/x/y.txt"],
        "members": ["g/m.txt", "g/n.txt"],
        "contents": ["one.txt", "s/a.txt", "s/b.txt", "g/m.txt", "g/n.txt"],
    }


PLUGINS = (("one", "sample_plugin:FIRST"), ("several", ("sample_plugin:FIRST", "sample_plugin:SECOND")))


def test_plug_ins_arrive_as_the_objects_that_their_names_stand_for(world: World) -> None:
    outcome = world.run(world.stage("plugged", plugins=PLUGINS))
    assert json.loads(world.content(outcome)) == ["first", ["first", ["second"]]]


def test_a_plug_in_that_its_module_does_not_have_is_named(world: World) -> None:
    outcome = world.run(world.stage("plugged", plugins=(("one", "sample_plugin:THIRD"), ("several", ()))))
    assert outcome.kind is OutcomeKind.FAILED
    assert "the module sample_plugin has no THIRD\n  it has: FIRST, SECOND" in outcome.message


def test_directories_and_groups_may_be_empty(world: World) -> None:
    request = world.stage(
        "describe",
        inputs=(world.entry("one.txt", "1"),),
        arguments=(("one", "one.txt"), ("several", ()), ("tree", "tree/")),
        groups=(("members", "g"),),
    )
    described = json.loads(world.content(world.run(request)))
    assert (described["tree"], described["members"]) == ([], [])


def test_a_stage_sees_declared_and_fixed_variables_and_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_BACKTRACE", "1")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    seen = json.loads(world.content(world.run(world.stage("surroundings", environment=(("DECLARED", "yes"),)))))
    directory = seen["directory"]
    assert seen["environment"] == {
        "DECLARED": "yes",
        "HOME": directory,
        "LC_ALL": "C.UTF-8",
        "MKL_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": "/usr/bin:/bin",
        "PYTHONHASHSEED": "0",
        "TMPDIR": f"{directory}/.tmp",
        "TVM_NUM_THREADS": "1",
    }


def test_a_stage_is_alone_in_its_directory_session_and_descriptors(world: World) -> None:
    seen = json.loads(world.content(world.run(world.stage("surroundings"))))
    assert seen["files"] == [".tmp"]
    assert seen["session_leader"]
    assert seen["input"] == ""
    # Standard streams, the channel of the result, and the directory that listdir reads.
    assert len(seen["descriptors"]) == 5


def test_hash_seed_is_fixed(world: World) -> None:
    seen = [json.loads(world.content(world.run(world.stage("surroundings")))) for _ in range(2)]
    world.executor.close()
    assert seen[0]["hash_seed"] == 0
    assert seen[0]["hash"] == seen[1]["hash"]


def test_a_network_stage_sees_the_users_own_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    request = world.stage("surroundings", requirements=ExecutionRequirements(network=True))
    seen = json.loads(world.content(world.run(request)))
    assert seen["environment"] == dict(os.environ)


def test_execution_hints_arrive_as_an_argument(world: World) -> None:
    request = world.stage("hinted", requirements=ExecutionRequirements(execution_hints=(("path", "/a/b"),)))
    assert json.loads(world.content(world.run(request))) == {"path": "/a/b"}


def test_a_stage_error_is_told_without_a_traceback(world: World) -> None:
    outcome = world.run(world.stage("refuse"))
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.message == "//t:x Stage: weights.gguf is truncated\n  download it again"
    assert outcome.log == b""


def test_another_exception_is_one_paragraph_and_a_traceback_in_the_log(world: World) -> None:
    outcome = world.run(world.stage("fail"))
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.message == "//t:x Stage: ValueError: the weights are upside down"
    assert b"Traceback" in outcome.log
    assert b"sample_stages.py" in outcome.log


def test_a_function_that_is_not_there_fails_the_action(world: World) -> None:
    outcome = world.run(world.stage("no_such_module:run"))
    assert outcome.kind is OutcomeKind.FAILED
    assert "No module named 'no_such_module'" in outcome.message


def test_want_of_memory_is_told_as_that(world: World) -> None:
    outcome = world.run(world.stage("out_of_memory"))
    assert outcome.kind is OutcomeKind.OUT_OF_MEMORY
    assert "--jobs" in outcome.message


def test_a_full_disk_is_the_machines_fault(world: World) -> None:
    outcome = world.run(world.stage("disk_full"))
    assert outcome.kind is OutcomeKind.ENVIRONMENT
    assert "no space left" in outcome.message
    assert outcome.log == b""


def test_a_module_outside_the_keys_closure_fails_the_stage(world: World) -> None:
    refused = world.run(world.stage("load_helper", allowed_modules=frozenset({"sample_stages"})))
    allowed = world.run(world.stage("load_helper", allowed_modules=frozenset({"sample_stages", "sample_helper"})))
    assert refused.kind is OutcomeKind.FAILED
    assert "sample_helper" in refused.message
    assert world.content(allowed) == "helped"


def test_memory_that_a_stage_has_freed_is_used_again(world: World) -> None:
    assert int(world.content(world.run(world.stage("numeric_stages:count_page_faults", rounds=50)))) < 64


def test_a_numeric_stage_computes(world: World) -> None:
    assert world.content(world.run(world.stage("numeric_stages:total", numbers=[1, 2.5]))) == "3.5"


def test_torch_cannot_be_imported(world: World) -> None:
    assert "hidden from actions" in world.content(world.run(world.stage("numeric_stages:load_torch")))


def test_inputs_that_have_gone_are_named(world: World) -> None:
    text = world.entry("text.txt", "ab")
    path = world.store.path_of(text.digest)
    path.unlink()
    outcome = world.run(world.stage("repeat", inputs=(text,), arguments=(("text", "text.txt"),), times=1))
    assert outcome.kind is OutcomeKind.INPUTS_MISSING
    assert outcome.missing == (text.digest,)


def test_an_action_that_writes_to_its_input_fails_and_the_store_forgets_the_blob(world: World) -> None:
    text = world.entry("text.txt", "ab")
    request = world.stage("write_to_input", inputs=(text,), arguments=(("text", "text.txt"),))
    outcome = world.run(request)
    assert outcome.kind is OutcomeKind.FAILED
    assert "wrote to its input text.txt" in outcome.message
    assert world.store.missing([text.digest]) == (text.digest,)


def test_an_input_that_is_stored_again_while_an_action_reads_it_was_not_written_by_it(world: World) -> None:
    """Two builds that store a blob at once both put it in its place."""
    text = world.entry("text.txt", "ab")
    request = world.stage("store_input_again", inputs=(text,), arguments=(("text", "text.txt"),))
    assert world.content(world.run(request)) == "ab"
    assert world.store.missing([text.digest]) == ()
