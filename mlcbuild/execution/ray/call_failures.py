"""What Ray's exceptions mean: why a call to a node failed, and whether the action may run again."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mlcbuild.engine.executor import OutcomeKind
from mlcbuild.errors import InfrastructureError

_OUT_OF_MEMORY = frozenset({"OutOfMemoryError"})
_CANCELLED = frozenset({"TaskCancelledError"})
NODE_DIED = "its node died"
NODE_SILENT = "its node does not answer"
_REASONS = {
    "WorkerCrashedError": "its worker process died",
    "NodeDiedError": NODE_DIED,
    "ActorDiedError": "its worker process died",
    "ActorUnavailableError": "its worker cannot be reached",
    "LocalRayletDiedError": "the node's Ray process died",
    "OwnerDiedError": "Ray lost its answer",
    "ObjectLostError": "Ray lost its answer",
    "ObjectFetchTimedOutError": "Ray lost its answer",
    "OutOfDiskError": "Ray has no space left on its disk",
    "ObjectStoreFullError": "Ray's object store is full",
    "TaskUnschedulableError": "no node accepts it any more",
    "RuntimeEnvSetupError": "the node could not set up its environment",
    "RaySystemError": "Ray failed",
    "RpcError": "Ray failed",
}
_SHOWN_CHARACTERS = 2000
_LARGEST = re.compile(r"MEM\(GB\)\s+COMMAND\s+\d+\s+([\d.]+)\s")  # in a table of the node's processes
_TOKEN_ERROR = re.compile("authentication|InvalidAuthToken", re.IGNORECASE)  # in Ray's messages
_MAKE_A_TOKEN = (
    "no token yet? make one on the head, `ray get-auth-token --generate`, and copy ~/.ray/auth_token to every machine"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailure:
    """`message` is one or two lines for people. `peak_bytes` is the memory that was too much; 0: not known. `node` is
    the identifier of the node that ran the call, `address` its IP address as Ray says it; "": not known.
    """

    kind: OutcomeKind
    message: str
    peak_bytes: int = 0
    node: str = ""
    address: str = ""


def failure_of(error: BaseException) -> CallFailure:
    """Decides by the names of an exception's classes, so that nothing of Ray has to be imported."""
    names = [base.__name__ for base in type(error).__mro__]
    if _OUT_OF_MEMORY.intersection(names):
        message = "its node ran out of memory, and Ray killed its worker"
        return CallFailure(kind=OutcomeKind.OUT_OF_MEMORY, message=message, peak_bytes=_used_bytes(str(error)))
    if _CANCELLED.intersection(names):
        return CallFailure(kind=OutcomeKind.CANCELLED, message="")
    for name in names:
        if name in _REASONS:
            # If memory runs out fast, Ray sees only that the worker has died.
            if name == "WorkerCrashedError" and "out of memory" in str(error).lower().replace("oom", "out of memory"):
                return CallFailure(kind=OutcomeKind.OUT_OF_MEMORY, message="its node ran out of memory")
            return CallFailure(kind=OutcomeKind.LOST, message=_REASONS[name])
    text = str(error).strip()
    if "RayTaskError" in names:
        last = text.splitlines()[-1] if text else type(error).__name__
        message = f"a node cannot run actions: {last[:_SHOWN_CHARACTERS]}"
        return CallFailure(kind=OutcomeKind.ENVIRONMENT, message=message, address=str(getattr(error, "ip", "")))
    if "RayError" in names:
        message = f"Ray failed: {text.partition(chr(10))[0][:_SHOWN_CHARACTERS]}"
        return CallFailure(kind=OutcomeKind.LOST, message=message)
    message = f"{type(error).__name__}: {text[:_SHOWN_CHARACTERS]}"
    return CallFailure(kind=OutcomeKind.ENVIRONMENT, message=f"Ray does not accept the action: {message}")


def connection_failure(error: BaseException) -> tuple[str, bool]:
    """Why there is no connection to a cluster, in one line for people, and whether another attempt may succeed."""
    if isinstance(error, ModuleNotFoundError) and error.name == "ray":
        return 'Ray is not installed: python -m pip install "mlcbuild[ray]"', False
    text = " ".join(str(error).partition("Ensure that the token")[0].split())
    may_retry = isinstance(error, OSError) or "timed out" in text  # OSError: ConnectionError and TimeoutError too
    if "uthentic" in text or "token" in text:
        may_retry = False
    return f"{type(error).__name__}: {text}"[:_SHOWN_CHARACTERS], may_retry


def unreachable(address: str, reason: str) -> InfrastructureError:
    """The error that there is no cluster at an address, or, for "", none on this machine."""
    where = f"the Ray cluster at {address}" if address else "a Ray cluster here"
    advice = (
        "check the address, that this machine is a node of the cluster, and that both have the same token"
        if address
        else "see what Ray printed, or build with --executor=local"
    )
    doing = "cannot be reached" if address else "cannot be started"
    more = (_MAKE_A_TOKEN,) if _TOKEN_ERROR.search(reason) else ()
    return InfrastructureError(f"{where} {doing}: {reason or 'it does not answer'}", advice=(advice, *more))


def _used_bytes(message: str) -> int:
    """The memory of the node's largest process, most likely the action's; 0 if Ray does not say it."""
    found = _LARGEST.search(message)
    try:
        return int(float(found[1]) * (1 << 30)) if found else 0
    except ValueError:
        return 0
