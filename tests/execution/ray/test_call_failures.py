"""What Ray's exceptions mean for an action."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mlcbuild.engine.executor import OutcomeKind
from mlcbuild.execution.ray.call_failures import connection_failure, failure_of, unreachable


def _exceptions() -> Any:
    return pytest.importorskip("ray.exceptions")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda ray: ray.WorkerCrashedError(), OutcomeKind.LOST),
        (lambda ray: ray.NodeDiedError("node"), OutcomeKind.LOST),
        (lambda ray: ray.LocalRayletDiedError(), OutcomeKind.LOST),
        (lambda ray: ray.ObjectLostError("00" * 28, None, ""), OutcomeKind.LOST),
        (lambda ray: ray.OwnerDiedError("00" * 28, None, ""), OutcomeKind.LOST),
        (lambda ray: ray.GetTimeoutError(), OutcomeKind.LOST),
        (lambda ray: ray.OutOfDiskError(), OutcomeKind.LOST),
        (lambda ray: ray.RaySystemError("client", None), OutcomeKind.LOST),
        (lambda ray: ray.TaskUnschedulableError("none"), OutcomeKind.LOST),
        (lambda ray: ray.OutOfMemoryError("used 8.25GB"), OutcomeKind.OUT_OF_MEMORY),
        (lambda ray: ray.TaskCancelledError(), OutcomeKind.CANCELLED),
        (
            lambda ray: ray.RayTaskError("serve", "Traceback\nNoModule: x", None),
            OutcomeKind.ENVIRONMENT,
        ),
        (lambda _: ValueError("no such option"), OutcomeKind.ENVIRONMENT),
    ],
)
def test_every_kind_of_failure_is_recognised(make: Callable[[Any], BaseException], kind: OutcomeKind) -> None:
    failure = failure_of(make(_exceptions()))
    assert failure.kind is kind
    assert (failure.message == "") is (kind is OutcomeKind.CANCELLED)
    assert "Traceback" not in failure.message


def test_no_failure_of_ray_counts_as_a_failure_of_the_action() -> None:
    exceptions = _exceptions()
    for name in dir(exceptions):
        kind = getattr(exceptions, name)
        if isinstance(kind, type) and issubclass(kind, exceptions.RayError) and kind.__module__ == exceptions.__name__:
            assert failure_of(_of(kind)).kind is not OutcomeKind.FAILED


def _of(kind: type[BaseException]) -> BaseException:
    return type(kind.__name__, (kind,), {"__init__": lambda _self: None, "__str__": lambda _self: "what Ray says"})()


def test_the_memory_that_was_too_much_is_read_from_rays_message() -> None:
    error = _exceptions().OutOfMemoryError(
        "1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 127.0.0.1, ID: b4) was "
        "3.32GB used / 23.54GB limit (0.141223)\n"
        "Selected to kill: (Task: job ID=01, task name=serve, pid=309, actual memory used=0.05GB, worker ID=6d)\n"
        "Top 10 memory users: PID\tMEM(GB)\tCOMMAND\n339\t2.50\tpython -c hold\n309\t0.05\tray::serve\n"
    )
    assert failure_of(error).peak_bytes == int(2.5 * (1 << 30))


@pytest.mark.parametrize(
    ("error", "may_retry"),
    [
        (ConnectionError("Could not connect to 10.0.0.1:6379"), True),
        (TimeoutError(), True),
        (Exception("The current node timed out during startup."), True),
        (ModuleNotFoundError("No module named 'ray'", name="ray"), False),
        (RuntimeError("Version mismatch: The cluster was started with: Ray: 2.59.0"), False),
        (ConnectionError("InvalidAuthToken: Authentication token is invalid"), False),
        (ValueError("no such option"), False),
    ],
)
def test_a_connection_is_retried_only_if_another_attempt_may_succeed(error: Exception, may_retry: bool) -> None:
    reason, may_come = connection_failure(error)
    assert may_come is may_retry
    assert reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("reason", "advised"),
    [
        ("AuthenticationError: Token authentication is enabled but no authentication token was found", True),
        ("ConnectionError: InvalidAuthToken: Authentication token is invalid", True),
        ("ConnectionError: Could not connect to 10.0.0.1:6379", False),
        ("", False),
    ],
)
def test_a_missing_token_is_reported_with_the_command_that_makes_one(reason: str, advised: bool) -> None:
    told = str(unreachable("10.0.0.1:6379", reason))
    assert ("ray get-auth-token --generate" in told) == advised
