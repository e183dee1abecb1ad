"""What Ray's exceptions mean for an action: whose fault it was, and whether it may run again."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mlcbuild.engine.executor import OutcomeKind

_OUT_OF_MEMORY = frozenset({"OutOfMemoryError"})
_CANCELLED = frozenset({"TaskCancelledError"})
NODE_WENT_AWAY = "its node went away"
_REASONS = {
    "WorkerCrashedError": "its worker process ended",
    "NodeDiedError": NODE_WENT_AWAY,
    "ActorDiedError": "its worker process ended",
    "ActorUnavailableError": "its worker cannot be reached",
    "LocalRayletDiedError": "the node's Ray process ended",
    "OwnerDiedError": "Ray lost its answer",
    "ObjectLostError": "Ray lost its answer",
    "ObjectFetchTimedOutError": "Ray lost its answer",
    "OutOfDiskError": "Ray has no space left on its disk",
    "ObjectStoreFullError": "Ray's object store is full",
    "TaskUnschedulableError": "no node takes it any more",
    "RuntimeEnvSetupError": "the node could not set up its environment",
    "RaySystemError": "Ray failed",
    "RpcError": "Ray failed",
}
_SHOWN_CHARACTERS = 2000
_LARGEST = re.compile(r"MEM\(GB\)\s+COMMAND\s+\d+\s+([\d.]+)\s")  # in a table of the node's processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`message` is for people: a line or two. `peak_bytes`: what was too much; 0 where it is not known."""

    kind: OutcomeKind
    message: str
    peak_bytes: int = 0


def fault_of(error: BaseException) -> Fault:
    """Judged by the names of an exception's classes, so that nothing of Ray is imported for it."""
    names = [base.__name__ for base in type(error).__mro__]
    if _OUT_OF_MEMORY.intersection(names):
        message = "its node ran out of memory, and Ray killed its worker"
        return Fault(kind=OutcomeKind.OUT_OF_MEMORY, message=message, peak_bytes=_used_bytes(str(error)))
    if _CANCELLED.intersection(names):
        return Fault(kind=OutcomeKind.CANCELLED, message="")
    for name in names:
        if name in _REASONS:
            # Where memory runs out fast, Ray sees no more than that the worker has gone.
            if name == "WorkerCrashedError" and "out of memory" in str(error).lower().replace("oom", "out of memory"):
                return Fault(kind=OutcomeKind.OUT_OF_MEMORY, message="its node ran out of memory")
            return Fault(kind=OutcomeKind.LOST, message=_REASONS[name])
    text = str(error).strip()
    if "RayTaskError" in names:
        last = text.splitlines()[-1] if text else type(error).__name__
        return Fault(kind=OutcomeKind.ENVIRONMENT, message=f"a node cannot run actions: {last[:_SHOWN_CHARACTERS]}")
    if "RayError" in names:
        return Fault(kind=OutcomeKind.LOST, message=f"Ray failed: {text.partition(chr(10))[0][:_SHOWN_CHARACTERS]}")
    message = f"{type(error).__name__}: {text[:_SHOWN_CHARACTERS]}"
    return Fault(kind=OutcomeKind.ENVIRONMENT, message=f"Ray does not take the action: {message}")


def refusal_of(error: BaseException) -> tuple[str, bool]:
    """Why there is no cluster to use, in a line for people; and whether it may come to be there."""
    if isinstance(error, ModuleNotFoundError) and error.name == "ray":
        return 'Ray is not installed: python -m pip install "mlcbuild[ray]"', False
    text = " ".join(str(error).partition("Ensure that the token")[0].split())
    passes = isinstance(error, OSError) or "timed out" in text  # ConnectionError and TimeoutError are of it
    if "uthentic" in text or "token" in text:
        passes = False
    return f"{type(error).__name__}: {text}"[:_SHOWN_CHARACTERS], passes


def _used_bytes(message: str) -> int:
    """How much the largest process of the node had, most likely the action's; 0 where Ray does not say it."""
    found = _LARGEST.search(message)
    try:
        return int(float(found[1]) * (1 << 30)) if found else 0
    except ValueError:
        return 0
