"""`mlcbuild cache push` and `pull` with a server that is gone, silent or slow."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.cli.cache_transfer.transfers import IMPATIENT, WRITES, Snapshot
from tests.cli.conftest import at_eighty_columns
from tests.cli.remote_places import Place, results_in
from tests.remote import http_server
from tests.remote.fault_proxy import Fault, faulty


def test_a_remote_that_cannot_be_reached_may_be_asked_again_later(place: Callable[[str], Place]) -> None:
    first = place("first")
    nobody = {"MLCBUILD_REMOTE": "http://127.0.0.1:9", "MLCBUILD_REMOTE_CONNECT_TIMEOUT": "1"}
    code, out, said = first.run("cache", "pull", "//...", **nobody)
    assert code == 36
    assert said.endswith("this may be retried: this machine failed, not your targets\n")
    assert "failed; the pull continues with the rest:" in said
    first.build("//...")
    code, out, said = first.run("cache", "push", "//...", **nobody, **WRITES)
    assert code == 36
    assert "3 not sent" in out
    assert "failed; the push continues with the rest:" in said
    assert "the build" not in said


@pytest.mark.slow
def test_a_server_that_falls_silent_ends_a_push(
    place: Callable[[str], Place], server: http_server.Cache, snapshot: Snapshot
) -> None:
    """Within the time that an answer and its repetitions may take, here seconds; what has moved stays."""
    first = place("first")
    first.build("//...")
    first.run("cache", "push", "//:one", "--remote", server.address, **WRITES)
    there = results_in(server)
    with faulty(int(server.address.rpartition(":")[2])) as proxy:
        proxy.faults.append(
            Fault(wanted=lambda asked: "/ac/" in asked.path and asked.path not in there, times=-1, stall=0)
        )
        began = time.monotonic()
        code, out, said = first.run("cache", "push", "//...", "--remote", proxy.endpoint, **WRITES, **IMPATIENT)
        assert time.monotonic() - began < 30
        assert (code, out) == (36, "1 result already there · 2 not sent\n")
        told = said[said.index("error:") :].replace(proxy.endpoint, "http://server")
        snapshot("cache-push-silence", at_eighty_columns(told))
        proxy.faults.clear()
        code, out, said = first.run("cache", "push", "//...", "--remote", proxy.endpoint, **WRITES)
    assert (code, said) == (0, "")
    assert out.startswith("sent 2 results")


@pytest.mark.slow
def test_a_server_that_falls_silent_ends_a_pull(
    place: Callable[[str], Place], server: http_server.Cache, snapshot: Snapshot
) -> None:
    first, second = place("first"), place("second")
    first.build("//...", "--remote", server.address, "--remote-upload=results")
    second.run("cache", "pull", "//:one", "--remote", server.address)
    with faulty(int(server.address.rpartition(":")[2])) as proxy:
        # A byte a second is no silence, and no answer either.
        proxy.faults.append(Fault(wanted=lambda request: "/ac/" in request.path, times=-1, trickle=1.0))
        began = time.monotonic()
        code, out, said = second.run("cache", "pull", "//...", "--remote", proxy.endpoint, **IMPATIENT)
        assert time.monotonic() - began < 60
    assert (code, out) == (36, "1 result already here · a build has to run 2 actions\n")
    told = said[said.index("error:") :].replace(proxy.endpoint, "http://server")
    snapshot("cache-pull-silence", at_eighty_columns(told))


def test_a_server_that_is_slow_is_waited_for(place: Callable[[str], Place], server: http_server.Cache) -> None:
    """Every answer takes a third of the time that is given to one, all together much more."""
    first, second = place("first"), place("second")
    first.build("//...")

    def slowly(_handler: http_server.Handler) -> bool:
        time.sleep(0.3)
        return False

    server.faults.append(slowly)
    began = time.monotonic()
    for one, arguments in ((first, ["push", "//..."]), (second, ["pull", "//..."])):
        code, out, _ = one.run("cache", *arguments, "--remote", server.address, **WRITES, **IMPATIENT)
        assert code == 0
        assert "3 results" in out
    assert time.monotonic() - began > 2
