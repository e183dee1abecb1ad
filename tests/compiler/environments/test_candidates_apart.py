"""A candidate of a search is measured in a process of its own: a crash or a hang costs that candidate."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from mlcbuild.compiler.environments.programs.build_relax import in_a_process


def wrong() -> float:
    raise ValueError("no such kernel")


def killed() -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


def endless() -> float:
    time.sleep(60)
    return 0.0


@pytest.mark.parametrize(
    ("candidate", "told"),
    [
        (killed, "it ended by SIGKILL"),
        (lambda: os._exit(0), "it ended by itself"),
        (wrong, "no such kernel"),
        (endless, "it was not measured in 0.2 seconds"),
    ],
)
def test_what_is_wrong_with_a_candidate_is_told_and_the_next_is_measured(
    candidate: Callable[[], float], told: str
) -> None:
    began = time.monotonic()
    assert in_a_process(candidate, 0.2 if candidate is endless else 20.0) == (None, told)
    assert time.monotonic() - began < 20
    assert in_a_process(lambda: 1.5, 20.0) == (1.5, "")
