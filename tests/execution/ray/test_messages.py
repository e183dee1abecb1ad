"""Messages between machines arrive as they were sent."""

from __future__ import annotations

import socket
import string
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import ExecutionRequirements, StageCall, ToolCall
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, FileEntry, OutcomeKind
from mlcbuild.execution.ray.executor import RayExecutor
from mlcbuild.execution.ray.frames import Receiver, pack, send, unpack
from mlcbuild.execution.ray.messages import outcome_from_json, outcome_to_json, request_from_json, request_to_json

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_DIGESTS = st.builds(Digest, st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(0, 1 << 50))
_ENTRIES = st.lists(st.builds(FileEntry, path=_TEXT, digest=_DIGESTS, is_executable=st.booleans())).map(tuple)
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


def _pairs(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[tuple[str, Any], ...]]:
    return st.lists(st.tuples(_TEXT, values), max_size=3).map(tuple)


_COMMANDS = st.builds(ToolCall, arguments=st.lists(_TEXT, max_size=3).map(tuple)) | st.builds(
    StageCall,
    function=_TEXT,
    inputs=_pairs(_TEXT | st.lists(_TEXT, max_size=2).map(tuple)),
    groups=_pairs(_TEXT),
    outputs=_pairs(_TEXT),
    parameters=_pairs(_JSON),
    plugins=_pairs(_TEXT | st.lists(_TEXT, max_size=3).map(tuple)),
)
_SECONDS = st.floats(0, 1e6)
_REQUIREMENTS = st.builds(
    ExecutionRequirements,
    cpus=st.integers(1, 512),
    memory_bytes=st.integers(0, 1 << 45),
    gpus=st.floats(0, 16),
    labels=_pairs(_TEXT),
    timeout_seconds=_SECONDS,
    network=st.booleans(),
    execution_hints=_pairs(_JSON),
)
_REQUESTS = st.builds(
    ExecutionRequest,
    identifier=_TEXT,
    mnemonic=_TEXT,
    command=_COMMANDS,
    inputs=_ENTRIES,
    outputs=st.lists(_TEXT).map(tuple),
    environment=_pairs(_TEXT),
    requirements=_REQUIREMENTS,
    expected_bytes=st.integers(0, 1 << 45),
    is_deterministic=st.booleans(),
    is_reproducible=st.booleans(),
    allowed_modules=st.frozensets(_TEXT),
    toolchains=st.lists(_TEXT, max_size=2).map(tuple),
    distributions=st.lists(_TEXT, max_size=2).map(tuple),
    code=st.lists(_TEXT).map(tuple),
    is_test=st.booleans(),
)
_OUTCOMES = st.builds(
    ExecutionOutcome,
    identifier=_TEXT,
    kind=st.sampled_from(OutcomeKind),
    outputs=_ENTRIES,
    message=_TEXT,
    notice=_TEXT,
    log=st.binary(max_size=20),
    exit_code=st.integers(-64, 255),
    timed_out=st.booleans(),
    missing=st.lists(_DIGESTS).map(tuple),
    worker=_TEXT,
    node=_TEXT,
    queued_seconds=_SECONDS,
    input_seconds=_SECONDS,
    run_seconds=_SECONDS,
    output_seconds=_SECONDS,
    peak_bytes=st.integers(0, 1 << 45),
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(request=_REQUESTS)
def test_a_request_arrives_as_it_was(request: ExecutionRequest) -> None:
    told, _ = unpack(pack(request_to_json(request)))
    assert request_from_json(told) == request


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(outcome=_OUTCOMES)
def test_an_outcome_arrives_as_it_was(outcome: ExecutionOutcome) -> None:
    told, blobs = unpack(pack(outcome_to_json(outcome), [outcome.log]))
    assert outcome_from_json(told, log=blobs[0]) == outcome


def test_nothing_that_requests_and_outcomes_hold_is_left_out_of_these_tests() -> None:
    """A field that is added to the class and not to the message would be lost."""
    request = ExecutionRequest(
        identifier="i",
        mnemonic="m",
        command=ToolCall(arguments=("a",)),
        inputs=(),
        outputs=(),
        environment=(),
        requirements=ExecutionRequirements(),
    )
    told = request_to_json(request)
    # Nodes read no file of the workspace: an executor with `reads_in_place` alone is told of such.
    assert set(told) | {"in_place"} == {field.name for field in fields(ExecutionRequest)}
    assert not hasattr(RayExecutor, "reads_in_place")
    assert set(told["requirements"]) == {field.name for field in fields(ExecutionRequirements)}
    outcome = outcome_to_json(ExecutionOutcome(identifier="i", kind=OutcomeKind.LOST))
    assert set(outcome) | {"log"} == {field.name for field in fields(ExecutionOutcome)}


@given(head=st.dictionaries(_TEXT, _JSON, max_size=4), blobs=st.lists(st.binary(max_size=50), max_size=4))
def test_blobs_beside_an_object_stay_apart(head: dict[str, Any], blobs: list[bytes]) -> None:
    assert unpack(pack(head, blobs)) == (head, blobs)


@given(cut=st.integers(0, 40))
def test_a_message_that_is_cut_short_is_no_message(cut: int) -> None:
    whole = pack({"name": string.ascii_letters}, [b"blob"])
    with pytest.raises(ValueError, match="message"):
        unpack(whole[: len(whole) - 1 - cut])


def test_frames_come_one_after_the_other_and_end_with_the_connection() -> None:
    ours, theirs = socket.socketpair()
    send(theirs, {"number": 1}, b"x" * 100_000)
    send(theirs, {"number": 2})
    theirs.close()
    receiver = Receiver(ours)
    assert receiver.receive() == ({"number": 1}, b"x" * 100_000)
    assert receiver.receive() == ({"number": 2}, b"")
    assert receiver.receive() is None
    receiver.close()
    ours.close()
