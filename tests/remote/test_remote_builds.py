"""Whole builds over a real S3 server, also through a faulty network: other users hit, and no build fails."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cache.remote.policy import RemotePolicy, RemoteRole, Upload
from mlcbuild.cache.remote.remote_store import RemoteStore
from mlcbuild.cache.remote.retrying import RetryPolicy
from mlcbuild.cache.remote.transport import Transport
from mlcbuild.engine.action import Action, SourceArtifact
from mlcbuild.engine.build_events import ActionStatus, Notice
from tests.engine.small_workspace import Workspace, shell, target
from tests.remote.fault_proxy import Fault, FaultProxy, Request, slow_down
from tests.remote.s3_world import World, deadlines

LARGE = 3_000_000


def actions() -> list[Action]:
    """A source, a folder with names of all kinds, a large file that five actions read, and one file of them all."""
    folder = shell(
        "folder",
        "cp in d/x; printf '' > d/empty; echo made > 'd/é 漢'; mkdir d/sub; echo deep > d/sub/y",
        [("in", SourceArtifact(path="a.txt"))],
        ("d/",),
    )
    large = shell("large", f"head -c {LARGE} /dev/zero | tr '\\0' '7' > out", [("d/", folder.output("d/"))])
    parts = [
        shell(f"part{number}", f"(echo {number}; head -c {number * 9000} in) > out", [("in", large.output("out"))])
        for number in range(5)
    ]
    whole = shell("whole", "cat p* > out", [(f"p{number}", part.output("out")) for number, part in enumerate(parts)])
    return [folder, large, *parts, whole]


class User:
    """A workspace, a cache and a home of their own; what they share is the bucket."""

    def __init__(self, folder: Path, *transports: Transport, **changes: Any) -> None:
        settings: dict[str, Any] = {
            "role": RemoteRole.READ_WRITE,
            "upload": Upload.RESULTS,
            "races": False,
            "retries": RetryPolicy(first=0.01, longest=0.1),
        }
        self.remote = RemoteStore(transports, RemotePolicy(**(settings | changes)), seed=1)
        self.workspace = Workspace(folder, remote=self.remote)
        self.workspace.write("a.txt", "hello")
        self.graph = actions()

    def build(self) -> set[ActionStatus]:
        wanted = target("//p:t", self.graph[-1].output("out"), self.graph[0].output("d/"))
        result = self.workspace.build(self.graph, wanted)
        assert result.success
        whole = "".join(f"{number}\n" + "7" * (9000 * number) for number in range(5))
        assert self.workspace.text("out/p/t/out0") == whole
        assert self.workspace.text("out/p/t/out1/x") == "hello"
        assert self.workspace.text("out/p/t/out1/é 漢") == "made\n"
        return set(self.workspace.statuses().values())

    @property
    def notices(self) -> list[str]:
        return [event.message for event in self.workspace.events if isinstance(event, Notice)]


def is_blob(request: Request) -> bool:
    return "/cas/" in request.path


def reads(request: Request) -> bool:
    return request.method == "GET"


def reads_blob(request: Request) -> bool:
    return reads(request) and is_blob(request)


def writes(request: Request) -> bool:
    return request.method == "PUT"


def test_what_one_user_has_built_another_takes_whole(tmp_path: Path, world: World, proxy: FaultProxy) -> None:
    first = User(tmp_path / "first", world.transport())
    assert first.build() == {ActionStatus.EXECUTED_LOCAL}
    assert first.notices == []
    assert first.remote.counters.results_uploaded == len(first.graph)
    second = User(tmp_path / "somewhere" / "else", world.transport(endpoint=proxy.endpoint), role=RemoteRole.READ)
    assert second.build() == {ActionStatus.REMOTE_HIT}
    counters = second.remote.counters
    assert (counters.hits, counters.missed, counters.retries) == (len(second.graph), 0, 0)
    # A request a result, one for the Tree, one for the only file wanted that does not travel in a result, and those of
    # the folder that was asked for. Nobody asks for the large file, which only hits have read.
    assert proxy.count("GET") <= len(second.graph) + 1 + 1 + 3
    assert proxy.count("GET") == sum(proxy.counts().values())
    assert counters.bytes_downloaded < LARGE / 2
    assert second.build() == {ActionStatus.UP_TO_DATE}


def test_a_network_that_does_all_it_can_fails_no_build(tmp_path: Path, world: World, proxy: FaultProxy) -> None:
    transport = world.transport(endpoint=proxy.endpoint, deadlines=deadlines(idle=2.0, total=10.0))
    proxy.faults += [
        slow_down(times=3, wanted=writes),
        Fault(wanted=writes, status=500, times=2),
        Fault(wanted=writes, reset=True, times=3),
        Fault(wanted=writes, lost_response=True, times=3),
        Fault(wanted=lambda request: request.method == "HEAD", status=503, times=2),
    ]
    first = User(tmp_path / "first", transport)
    assert first.build() == {ActionStatus.EXECUTED_LOCAL}
    assert first.remote.counters.retries > 0
    assert first.remote.counters.uploads_dropped == 0
    proxy.faults[:] = [
        Fault(wanted=reads, reset=True, times=2),
        slow_down(times=2, wanted=reads),
        Fault(wanted=reads_blob, flip=True, times=2),
        Fault(wanted=reads_blob, cut=10, times=2),
        Fault(wanted=reads, stall=0, times=1),
    ]
    second = User(
        tmp_path / "second", world.transport(endpoint=proxy.endpoint, deadlines=deadlines(idle=2.0, total=10.0))
    )
    assert ActionStatus.REMOTE_HIT in second.build()
    assert all(fault.hits for fault in proxy.faults)
    proxy.faults.clear()
    third = User(tmp_path / "third", world.transport())
    assert third.build() == {ActionStatus.REMOTE_HIT}


def test_a_blob_that_went_is_made_again_and_the_next_user_hits(tmp_path: Path, world: World) -> None:
    User(tmp_path / "first", world.transport()).build()
    whole = "".join(f"{number}\n" + "7" * (9000 * number) for number in range(5)).encode()
    digest = world.transport().function.of_bytes(whole)
    (key,) = (key for key in world.keys() if key.endswith(digest.hash))  # noqa: SIM118  # `World.keys` is no mapping.
    world.server.client().delete_object(Bucket=world.bucket, Key=f"{world.prefix}/{key}")
    second = User(tmp_path / "second", world.transport())
    assert second.build() == {ActionStatus.REMOTE_HIT, ActionStatus.EXECUTED_LOCAL}
    assert second.workspace.executed() == {"whole"}
    assert second.remote.counters.blobs_lost == 1
    assert User(tmp_path / "third", world.transport()).build() == {ActionStatus.REMOTE_HIT}


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(times=-1, reset=True), "tries it again later"),
        (Fault(times=-1, status=403, code="AccessDenied"), "denied access"),
    ],
)
def test_a_server_that_never_answers_is_told_once_and_left_alone(
    tmp_path: Path, world: World, proxy: FaultProxy, fault: Fault, says: str
) -> None:
    proxy.faults.append(fault)
    user = User(tmp_path / "first", world.transport(endpoint=proxy.endpoint))
    assert user.build() == {ActionStatus.EXECUTED_LOCAL}
    assert sum(says in notice for notice in user.notices) == 1
    assert len(user.notices) <= 3
    assert user.remote.counters.uploads_dropped == len(user.graph)
    fault.times = 0
    assert User(tmp_path / "second", world.transport()).build() == {ActionStatus.EXECUTED_LOCAL}


def test_results_of_a_request_to_change_are_seen_by_none_but_its_own(tmp_path: Path, world: World) -> None:
    trusted = world.prefix
    own = f"{world.prefix}-{uuid.uuid4().hex}"
    User(tmp_path / "main", world.transport(prefix=trusted)).build()
    change = User(tmp_path / "change", world.transport(prefix=own), world.transport(prefix=trusted))
    changed = shell("changed", "tr a-z A-Z < in > out", [("in", SourceArtifact(path="a.txt"))])
    change.graph.insert(1, changed)
    change.graph[-1] = shell(
        "whole",
        "cat p* > out",
        [("c", changed.output("out")), *((i.path, i.artifact) for i in change.graph[-1].inputs)],
    )
    change.build()
    assert change.workspace.executed() == {"changed", "whole"}
    again = User(tmp_path / "again", world.transport(prefix=own), world.transport(prefix=trusted))
    again.graph = change.graph
    assert again.build() == {ActionStatus.REMOTE_HIT}
    outside = User(tmp_path / "outside", world.transport(prefix=trusted))
    outside.graph = change.graph
    outside.build()
    assert outside.workspace.executed() == {"changed", "whole"}
