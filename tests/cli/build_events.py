"""Events of builds that were never run, as the driver tells them: one that failed, and any number of plain ones."""

from __future__ import annotations

from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionStatus,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    Cause,
    PathStep,
    Slack,
    TargetFinished,
)
from mlcbuild.engine.executor import FileEntry

BEGAN = 1_700_000_000.25  # when the first of them began, in seconds since 1970
OUTPUT = FileEntry(path="lib.so", digest=Digest("ab" * 32, 4096), is_executable=True)
_RAN = {ActionStatus.EXECUTED_LOCAL: "local", ActionStatus.EXECUTED_RAY: "ray", ActionStatus.FAILED: "local"}


def finished(
    name: str, status: ActionStatus, start: float, end: float, *, owner: str = "//m:a", **more: Any
) -> ActionFinished:
    """The end of an action, whose mnemonic is the first word of `name`. It ran where its status says so."""
    executor = _RAN.get(status, "")
    fields: dict[str, Any] = {
        "identifier": f"{owner} {name}",
        "mnemonic": name.split()[0],
        "owner": owner,
        "status": status,
        "start": start,
        "time": end,
        "key": f"{name.split()[0].encode().hex():0<64}"[:64],
        "worker": executor,
        "executor": executor,
        "cause": Cause.FIRST if executor else None,
    }
    return ActionFinished(**(fields | more))


def ran(name: str, start: float, end: float, **more: Any) -> ActionFinished:
    return finished(name, more.pop("status", ActionStatus.EXECUTED_LOCAL), start, end, **more)


ADD = "CompileKernel add n×2048 decode+1 (a1b2c3d4)"
_FAR = {"status": ActionStatus.EXECUTED_RAY, "worker": "node-2 task 9", "node": "node-2"}
# A build of two targets that share a kernel, which failed at the end.
STORY: tuple[BuildEvent, ...] = (
    BuildStarted(invocation="1b4e28ba-2fa1-4d63-883f-0016d3cca427", targets=("//m:a", "//m:b"), jobs=2),
    finished("Import", ActionStatus.UP_TO_DATE, 0.1, 0.1),
    ran("Export", 0.2, 4.2, queued_seconds=0.01, input_seconds=0.1, output_seconds=0.25, peak_bytes=512_000_000),
    ran(
        "CompileKernel fused_add",
        4.3,
        14.4,
        **_FAR,
        queued_seconds=1.5,
        cause=Cause.CHANGED,
        previous_key="ef" * 32,
        title=f"//m:a {ADD}",
        details={"kernel": "fused_add", "functions": ["decode", "prefill"], "parameters": [], "shape": ["n", 2048]},
        shared_by=("//m:b CompileKernel fused_add",),
    ),
    ran("CompileKernel fused_mul", 4.3, 5.4, cause=Cause.NO_RESULT),
    ran("Link", 14.4, 14.6, status=ActionStatus.FAILED, message="no symbol foo", exit_code=1, cause=Cause.CHANGED),
    BuildFinished(
        success=False,
        interrupted=False,
        wall_seconds=15.0,
        counts=tuple(zip(ActionStatus, (1, 0, 0, 2, 1, 0, 1, 0), strict=True)),
        critical_path=(
            PathStep(identifier="//m:a Export", mnemonic="Export", seconds=4.0),
            PathStep(
                identifier="//m:a CompileKernel fused_add",
                mnemonic="CompileKernel",
                seconds=10.1,
                title=f"//m:a {ADD}",
            ),
            PathStep(identifier="//m:a Link", mnemonic="Link", seconds=0.2),
        ),
        slacks=(Slack(identifier="//m:a CompileKernel fused_mul", seconds=9.0),),
    ),
)


def invocation_of(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def plain_build(number: int, *, actions: int = 3, label: str = "//m:a", cached: int = 0) -> list[BuildEvent]:
    """A build of which `actions` ran, one second each, and `cached` were up to date."""
    statuses = [ActionStatus.EXECUTED_LOCAL] * actions + [ActionStatus.UP_TO_DATE] * cached
    ended = [
        finished(
            f"Compile {index}",
            status,
            float(index),
            index + (1.0 if status is ActionStatus.EXECUTED_LOCAL else 0.0),
            owner=label,
            key=f"{index:064x}",
            worker="",
            cause=None,
            output_files=(OUTPUT,),
        )
        for index, status in enumerate(statuses)
    ]
    counts = tuple((status, statuses.count(status)) for status in ActionStatus)
    steps = tuple(PathStep(identifier=each.identifier, mnemonic="Compile", seconds=1.0) for each in ended[:1])
    slacks = tuple(Slack(identifier=each.identifier, seconds=2.0) for each in ended[1:actions])
    return [
        BuildStarted(invocation=invocation_of(number), targets=(label,), jobs=2, digest_function="blake3"),
        *ended,
        TargetFinished(label=label, success=True, outputs=(OUTPUT.path,), output_files=(OUTPUT,)),
        BuildFinished(
            success=True, interrupted=False, wall_seconds=4.0, counts=counts, critical_path=steps, slacks=slacks
        ),
    ]
