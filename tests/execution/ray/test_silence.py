"""Nodes that do not answer are found, and so is which calls they had. No cluster is needed for that."""

from __future__ import annotations

import json
import queue
import socket
import threading

import pytest

from mlcbuild.execution.ray.announcements import Announcements, Announcer
from mlcbuild.execution.ray.silence import SILENT_SECONDS, Address, Silence, answering_addresses

A, B = ("10.0.0.1", 1), ("10.0.0.2", 2)


def test_a_node_is_silent_after_some_seconds_without_an_answer_and_no_longer_once_it_answers() -> None:
    now, answering = [0.0], {A, B}
    silence = Silence(clock=lambda: now[0], answering=lambda asked: frozenset(answering & asked))
    nodes = {"a": A, "b": B}
    assert silence.look(nodes) == frozenset()
    answering.remove(A)
    now[0] = SILENT_SECONDS - 0.1
    assert silence.look(nodes) == frozenset()
    now[0] = SILENT_SECONDS
    assert silence.look(nodes) == {"a"}
    assert silence.look({"b": B}) == frozenset()
    assert silence.look(nodes) == frozenset()  # A node that comes is given time.
    answering.add(A)
    now[0] = 1000.0
    assert silence.look(nodes) == frozenset()


def test_a_machine_that_refuses_a_connection_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as other:
        accepts: Address = listening.getsockname()
        refuses: Address = other.getsockname()
        other.close()
        assert answering_addresses(frozenset({accepts, refuses})) == {accepts, refuses}


def test_many_nodes_are_looked_at_together() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=300) as listening:
        port = listening.getsockname()[1]
        addresses = frozenset((f"127.0.1.{number}", port) for number in range(1, 250))
        assert answering_addresses(addresses) == addresses  # They refuse.


@pytest.fixture
def heard() -> queue.SimpleQueue[tuple[int, str]]:
    return queue.SimpleQueue()


def test_calls_are_announced_over_one_connection(heard: queue.SimpleQueue[tuple[int, str]]) -> None:
    announcements = Announcements("127.0.0.1", lambda number, node: heard.put((number, node)))
    announcer = Announcer()
    target = json.loads(json.dumps(announcements.target))
    for number in range(100):
        announcer.announce(target, number, "a" * 56)
    assert [heard.get(timeout=20) for _ in range(100)] == [(number, "a" * 56) for number in range(100)]
    announcer.close()
    announcements.close()


@pytest.mark.parametrize(
    "said",
    [
        b'{"secret": "wrong", "number": 1, "node": "a"}\n',
        b'{"secret": 1, "number": 1, "node": "a"}\n',
        b"GET / HTTP/1.1\r\n\r\n",
        b"[]\n",
        b"\xff\n",
        b"x" * 100_000,
    ],
)
def test_strangers_are_not_believed_and_disturb_nobody(heard: queue.SimpleQueue[tuple[int, str]], said: bytes) -> None:
    announcements = Announcements("127.0.0.1", lambda number, node: heard.put((number, node)))
    with socket.create_connection(announcements.target["address"]) as stranger:
        stranger.settimeout(20)
        try:
            stranger.sendall(said)
            assert stranger.recv(1) == b""
        except ConnectionError:
            pass
    announcer = Announcer()
    announcer.announce(announcements.target, 7, "a")
    assert heard.get(timeout=20) == (7, "a")
    assert heard.empty()
    announcer.close()
    announcements.close()


def test_a_build_that_cannot_be_reached_costs_a_node_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def refused(address: Address, timeout: float) -> socket.socket:
        attempts.append(address)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", refused)
    announcer = Announcer()
    for number in range(5):
        announcer.announce({"address": ["10.9.9.9", 1], "secret": "s"}, number, "a")
        announcer.announce(None, number, "a")
    assert attempts == [("10.9.9.9", 1)]


def test_a_connection_that_the_build_has_closed_is_made_again(heard: queue.SimpleQueue[tuple[int, str]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        target = {"address": listening.getsockname(), "secret": "s"}
        announcer = Announcer()
        announcer.announce(target, 1, "a")
        first, _ = listening.accept()
        first.recv(4096)
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        first.close()  # with a reset
        received: list[bytes] = []

        def accept() -> None:
            connection, _ = listening.accept()
            with connection:
                received.append(connection.recv(4096))

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        for number in range(2, 5):
            announcer.announce(target, number, "a")
        accepting.join(20)
        announcer.close()
        assert b'"node": "a"' in received[0]
