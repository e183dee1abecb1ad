"""The progress that `mlcbuild cache push` and `pull` show."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest

from mlcbuild.cache.remote.counters import Counters
from mlcbuild.cli.cache.transfer import Silence
from mlcbuild.cli.output.slow_progress import SlowProgress
from tests.cli.cache_transfer.transfers import WRITES
from tests.cli.remote_places import Place
from tests.remote import http_server


def test_progress_shows_for_how_long_nothing_has_finished() -> None:
    now = [0.0]
    silence = Silence(clock=lambda: now[0])
    told = []
    for seconds, counters, done in (
        (0.0, Counters(), 0),
        (4.0, Counters(), 0),
        (6.4, Counters(), 0),
        (8.0, Counters(retries=1, failures=1), 0),  # To ask again finishes nothing.
        (9.0, Counters(retries=1, blobs_uploaded=1), 0),
        (15.0, Counters(retries=1, blobs_uploaded=1), 0),
        (16.0, Counters(retries=1, blobs_uploaded=1), 1),
    ):
        now[0] = seconds
        told.append(silence.note(counters, done))
    assert told == ["", "", ", nothing finished for 6 s", ", nothing finished for 8 s", "", told[-2], ""]
    assert told[-2] == ", nothing finished for 6 s"


def test_progress_of_a_slow_transfer_is_shown(
    place: Callable[[str], Place], server: http_server.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlcbuild.cli.output.slow_progress._QUIET_SECONDS", -1.0)
    first, second = place("first"), place("second")
    first.build("//...")
    _, out, said = first.run("cache", "push", "//...", "--remote", server.address, **WRITES)
    assert re.match(r"(pushing, [\d.]+ k?B: \d+ % · 0.0 s\n)+", said)
    assert out.startswith("sent 3")
    _, out, said = second.run("cache", "pull", "//...", "--remote", server.address)
    assert re.match(r"(pulling, [\d.]+ k?B: \d+( of \d+)? · 0.0 s\n)+", said)
    assert out.startswith("pulled 3")


def test_progress_of_a_pull_counts_and_has_no_percentage(
    place: Callable[[str], Place], server: http_server.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of known actions grows while results are pulled, so a percentage of it would fall."""
    monkeypatch.setattr("mlcbuild.cli.output.slow_progress._QUIET_SECONDS", -1.0)
    monkeypatch.setattr("mlcbuild.engine.result_collector._PROGRESS_SECONDS", 0.001)
    told: list[tuple[int, int]] = []

    def show(_self: SlowProgress, _what: str, done: int, known: int) -> None:
        told.append((done, known))

    monkeypatch.setattr(SlowProgress, "show_counted", show)
    monkeypatch.setattr(SlowProgress, "__call__", lambda *_: pytest.fail("a percentage"))
    _, out, _ = place("second").run("cache", "pull", "//...", "--remote", server.address)
    assert "a build has to run" in out
    assert told
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_counts_of_growing_work_have_no_percentage() -> None:
    stream, now = io.StringIO(), [1.0]
    progress = SlowProgress(stream, live=False, clock=lambda: now[0])
    for done, known in ((0, 10), (9, 10), (9, 1_000), (1_000, 1_000)):
        now[0] *= 10
        progress.show_counted("pulling", done, known)
    shown = [line.partition(" ·")[0] for line in stream.getvalue().splitlines()]
    assert shown == ["pulling: 0 of 10", "pulling: 9 of 10", "pulling: 9 of 1,000", "pulling: 1,000"]
