"""Events of builds, and a clock, for tests of what a console prints."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

from mlcbuild.cli.console.action_logs import ActionLogs
from mlcbuild.cli.console.console import Console
from mlcbuild.cli.output.terminal import Style
from mlcbuild.cli.output.text import COLUMNS
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionsAdded,
    ActionStarted,
    ActionStatus,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    Notice,
    TargetFinished,
)

Snapshot = Callable[[str, str], None]


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def started(identifier: str, time: float) -> ActionStarted:
    return ActionStarted(identifier=identifier, mnemonic=identifier.split()[1], executor="local", time=time)


def finished(
    identifier: str,
    status: ActionStatus,
    *,
    start: float = 0.0,
    time: float = 0.0,
    message: str = "",
    log: bytes = b"",
    exit_code: int = 0,
    title: str = "",
    shared_with: str = "",
    shared_by: tuple[str, ...] = (),
) -> ActionFinished:
    return ActionFinished(
        identifier=identifier,
        mnemonic=identifier.split()[1],
        owner=identifier.split()[0],
        status=status,
        start=start,
        time=time,
        message=message,
        log=log,
        exit_code=exit_code,
        worker="local" if start else "",
        executor="local" if status is ActionStatus.EXECUTED_LOCAL else "",
        title=title,
        shared_with=shared_with,
        shared_by=shared_by,
    )


LONG_LOG = b"".join(b"line %d\n" % number for number in range(1, 41)) + b"ld: undefined symbol: f\x1b[31moo\n"


STORY: tuple[BuildEvent, ...] = (
    BuildStarted(invocation="00000000-0000-4000-8000-000000000000", targets=("//models:a",)),
    ActionsAdded(count=5, total=5),
    finished("//models:a ImportConfig", ActionStatus.UP_TO_DATE),
    started("//models:a Export", 0.5),
    started("//models:b Export", 0.6),
    finished("//models:a Export", ActionStatus.EXECUTED_LOCAL, start=0.5, time=4.7, log=b"warning: no tokenizer\n"),
    Notice(message="the remote cache does not answer; building without it", time=4.8),
    ActionsAdded(count=2, total=7, discovered_by="//models:a Partition"),
    finished("//models:b Export", ActionStatus.FAILED, start=0.6, time=5.0, message="", exit_code=3),
    started("//models:a Link", 5.1),
    finished(
        "//models:a Link",
        ActionStatus.FAILED,
        start=5.1,
        time=5.5,
        message="the linker found no symbol foo\nneeded by fused_matmul",
        log=LONG_LOG,
        exit_code=1,
    ),
    finished("//models:a Package", ActionStatus.SKIPPED, message="//models:a Link failed"),
    TargetFinished(label="//models:a", success=False, error="//models:a Link failed", time=5.5),
    TargetFinished(label="//models:c", success=True, outputs=("mlcbuild-out/default/models/c/c.so",), time=5.5),
    BuildFinished(success=False, interrupted=False, wall_seconds=5.5, counts=()),
)


KERNEL = "kernel_05d87762d9837cde1953f77f2d14f30c"


ADD = "CompileKernel add n×2048 prefill+2 (05d87762)"


SHARED: tuple[BuildEvent, ...] = (
    BuildStarted(invocation="00000000-0000-4000-8000-000000000000", targets=("//:a", "//:b", "//:c")),
    ActionsAdded(count=9, total=9),
    finished("//:b Export", ActionStatus.DISK_HIT, shared_with="//:a Export"),
    finished("//:c Export", ActionStatus.DISK_HIT, shared_with="//:a Export"),
    finished("//:a Export", ActionStatus.EXECUTED_LOCAL, start=0.1, time=1.1, shared_by=("//:b Export", "//:c Export")),
    finished(f"//:a CompileKernel {KERNEL}", ActionStatus.EXECUTED_LOCAL, start=1.1, time=1.2, title=f"//:a {ADD}"),
    finished(
        "//:a Lower",
        ActionStatus.FAILED,
        start=2.0,
        time=2.2,
        message="no such pass",
        shared_by=("//:b Lower", "//:c Lower"),
    ),
    finished("//:b Lower", ActionStatus.FAILED, message="no such pass", shared_with="//:a Lower"),
    finished("//:c Lower", ActionStatus.FAILED, message="no such pass", shared_with="//:a Lower"),
    TargetFinished(
        label="//:a",
        success=False,
        error="//:a Lower failed (shared with //:b, //:c)",
        time=2.2,
        blocked_by="//:a Lower",
    ),
    TargetFinished(
        label="//:b",
        success=False,
        error="//:b Lower failed (shared with //:a, //:c)",
        time=2.2,
        blocked_by="//:b Lower",
    ),
    TargetFinished(
        label="//:c",
        success=False,
        error="//:c Lower failed (shared with //:a, //:b)",
        time=2.2,
        blocked_by="//:c Lower",
    ),
)


def plain(
    events: Sequence[BuildEvent],
    directory: Path,
    *,
    style: Style | None = None,
    show_log: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> str:
    stream = io.StringIO()
    logs = ActionLogs(directory, shown_as=".mlcbuild/logs")
    console = Console(
        stream,
        style=style or Style(),
        live=False,
        keep_log=logs.keep,
        show_log=show_log,
        quiet=quiet,
        verbose=verbose,
        width=lambda: COLUMNS,
        clock=Clock(),
    )
    for event in events:
        console(event)
    console.close()
    return stream.getvalue()
