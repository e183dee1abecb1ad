"""Builds for the report page: a workspace, and event logs as `mlcbuild build --events` writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.reports.event_log import EventLog
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionsAdded,
    ActionStarted,
    ActionStatus,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    Cause,
    Notice,
    PathStep,
    Slack,
    TargetFinished,
    TargetSkipped,
)
from mlcbuild.engine.executor import FileEntry
from tests.cli import copying_workspace
from tests.cli.build_events import finished

_STATUSES = ("up_to_date", "disk_hit", "remote_hit", "executed_local", "executed_ray")
BUILD_FILE = f"""\
{copying_workspace.BUILD_FILE}
[[command]]
name = "again-{{size}}"
tool = ":sh"
inputs = [":copy"]
arguments = ["-c", "cat {{inputs}} > {{outputs}}; echo {{size}} >> {{outputs}}"]
outputs = ["again.txt"]
matrix = {{ size = ["small", "large"] }}
"""
BEGAN = 1_700_000_000.0


def digest_of(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def action(
    name: str, status: str, start: float, end: float, *, owner: str = "//m:a", cause: str = "", **more: Any
) -> ActionFinished:
    """The end of an action with an output. `status` and `cause` are as in an event log."""
    identifier = f"{owner} {name}"
    output = FileEntry(path="out", digest=Digest(digest_of("output", identifier), 1234), is_executable=False)
    fields: dict[str, Any] = {"key": digest_of("key", identifier), "output_files": (output,)}
    if status.startswith("executed") or status == "failed":
        fields["peak_bytes"] = 100_000_000
    if cause:
        fields["cause"] = Cause(cause)
    return finished(name, ActionStatus(status), start, end, owner=owner, **(fields | more))


@dataclass(kw_only=True)
class EventLogText:
    """What an event log tells. Where `exit_code` is None, the end is missing."""

    actions: Sequence[ActionFinished]
    begun: Sequence[ActionsAdded | ActionStarted] = ()
    targets: Sequence[TargetFinished] = ()
    notices: Sequence[str] = ()
    exit_code: int | None = 0
    wall_seconds: float = 10.0
    jobs: int = 2
    critical_path: Sequence[str] = ()
    slacks: dict[str, float] = field(default_factory=dict)
    axes: dict[str, dict[str, str]] = field(default_factory=dict)
    skipped: Sequence[TargetSkipped] = ()
    began: float = BEGAN
    invocation: str = "1b4e28ba-2fa1-4d63-883f-0016d3cca427"

    def write(self, path: Path) -> Path:
        log = EventLog(path, invocation=self.invocation, arguments=["build", "//m:a"], began=self.began)
        log.begin()
        for event in self._events():
            log(event)
        log.close(exit_code=ExitCode(self.exit_code or 0), error="", wall_seconds=11.0)
        if self.exit_code is None:
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            path.write_text("".join(lines[:-1]), encoding="utf-8")
        return path

    def _events(self) -> list[BuildEvent]:
        by_name = {each.identifier: each for each in self.actions}
        begun: list[BuildEvent] = [
            *self.skipped,
            BuildStarted(
                invocation=self.invocation,
                targets=tuple(target.label for target in self.targets),
                axes=self.axes,
                jobs=self.jobs,
            ),
            *self.begun,
            *self.actions,
            *(Notice(message=message, time=1.5) for message in self.notices),
            *self.targets,
        ]
        if self.exit_code is None:
            return begun
        steps = [by_name[name] for name in self.critical_path]
        statuses = [each.status for each in self.actions]
        ended = BuildFinished(
            success=self.exit_code == 0,
            interrupted=False,
            wall_seconds=self.wall_seconds,
            counts=tuple((status, statuses.count(status)) for status in ActionStatus),
            critical_path=tuple(
                PathStep(identifier=each.identifier, mnemonic=each.mnemonic, seconds=each.time - each.start)
                for each in steps
            ),
            slacks=tuple(Slack(identifier=name, seconds=value) for name, value in self.slacks.items()),
            bytes_downloaded=18_000_000,
            bytes_uploaded=2_000_000,
        )
        return [*begun, ended]


def small_build() -> EventLogText:
    """A matrix of two by two with one cell that failed, results from every cache, and two machines."""
    kernel = {"kernel": "fused_add", "operation": "add", "functions": ["decode"], "shape": ["n", 2048]}
    far: dict[str, Any] = {"node": "node-2", "worker": "node-2 worker 3", "queued_seconds": 0.5, "cause": "changed"}
    actions = [
        action("Import", "up_to_date", 0.1, 0.1),
        action("Fetch", "remote_hit", 0.1, 0.2),
        action("ImportConfig", "disk_hit", 0.1, 0.2),
        action("Export", "executed_local", 0.2, 4.2, input_seconds=0.1, output_seconds=0.25, log=b"exporting\n"),
        action(
            "CompileKernel fused_add",
            "executed_ray",
            4.3,
            7.4,
            **far,
            title="//m:a CompileKernel add n×2048 decode (a1b2c3d4)",
            details=kernel,
            shared_by=("//m:b CompileKernel fused_add",),
        ),
        action("CompileKernel fused_mul", "executed_local", 4.3, 5.4, cause="no result"),
        action("Link", "executed_local", 7.4, 7.6),
        action("Export", "executed_local", 5.5, 6.5, owner="//m:b"),
        action(
            "Lower", "failed", 6.5, 7.0, owner="//m:b", message="no symbol foo", exit_code=1, log=b"it goes wrong\n"
        ),
        action("Link", "skipped", 7.0, 7.0, owner="//m:b", message="//m:b Lower failed"),
        action("Link", "up_to_date", 7.0, 7.0, owner="//m:c"),
    ]
    axes = {
        "//m:a": {"model": "small", "platform": "cpu"},
        "//m:b": {"model": "small", "platform": "sm_90"},
        "//m:c": {"model": "large", "platform": "cpu"},
    }
    return EventLogText(
        actions=actions,
        targets=[
            TargetFinished(label="//m:a", success=True, outputs=("mlcbuild-out/default/m/a/lib.so",)),
            TargetFinished(label="//m:b", success=False, error="//m:b Lower failed", blocked_by="//m:b Lower"),
            TargetFinished(label="//m:c", success=True, outputs=("mlcbuild-out/default/m/c/lib.so",)),
        ],
        axes=axes,
        skipped=[
            TargetSkipped(
                label="//m:d",
                reason="not compatible with @platforms//:sm_90",
                axes={"model": "large", "platform": "sm_90"},
            )
        ],
        notices=["a worker was lost"],
        exit_code=1,
        critical_path=["//m:a Export", "//m:a CompileKernel fused_add", "//m:a Link"],
        slacks={"//m:a CompileKernel fused_mul": 2.0},
    )


def spread_build() -> EventLogText:
    """A build on this machine and three nodes with three workers each, whose names are in no order. One action of a
    worker begins before the one in front of it has ended, as clocks that differ have it.
    """
    actions = [action("Export", "executed_local", 0.0, 3.0), action("Phase0", "executed_local", 1.0, 2.5)]
    for node in ("node-10", "node-2", "node-1"):
        for worker in (11, 3, 1):
            for turn in range(3):
                began = 3.0 + 2.0 * turn
                ended = began + (2.5 if (node, worker, turn) == ("node-2", 3, 0) else 1.8)
                name = f"CompileKernel {node}-{worker}-{turn}"
                more = {"node": node, "worker": f"{node}/{worker}"}
                actions.append(action(name, "executed_ray", began, ended, **more))
    actions.append(action("Link", "executed_ray", 12.0, 13.0, node="node-2", worker="node-2/3"))
    return EventLogText(
        actions=actions,
        targets=[TargetFinished(label="//m:a", success=True, outputs=("mlcbuild-out/default/m/a/lib.so",))],
        wall_seconds=13.0,
        critical_path=["//m:a Export", "//m:a Link"],
    )


def large_build(count: int, *, began: float = BEGAN, slower: float = 1.0) -> EventLogText:
    """So many actions of 25 targets on four machines with eight workers each; a sixth ran, or more."""
    free = [0.0] * 32
    actions = []
    for index in range(count):
        owner = f"//models:model-{index % 25}"
        status = _STATUSES[int(digest_of(index)[:4], 16) % len(_STATUSES)]
        slot = index % len(free)
        start = end = free[slot]
        more: dict[str, Any] = {}
        if status.startswith("executed"):
            status = "executed_ray"
            end = free[slot] = start + slower * (1 + int(digest_of("seconds", index)[:4], 16) % 900) / 400
            node = f"node-{slot // 8 + 1}"
            more = {"node": node, "worker": f"{node} worker {slot % 8}", "input_seconds": 0.02}
        kernel = digest_of(index)[:8]
        name = f"CompileKernel dequantize_matmul qkv_proj 6144×4096 ·×n prefill+{index % 7} ({kernel})"
        actions.append(action(name, status, round(start, 3), round(end, 3), owner=owner, **more))
    labels = sorted({each.owner for each in actions})
    return EventLogText(
        actions=actions,
        targets=[TargetFinished(label=label, success=True, outputs=(f"{label[2:]}/lib.so",)) for label in labels],
        wall_seconds=max(free),
        jobs=32,
        began=began,
    )
