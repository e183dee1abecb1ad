"""The events of one small build, for reports of it."""

from __future__ import annotations

from collections.abc import Callable

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionsAdded,
    ActionStarted,
    ActionStatus,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    Notice,
    PathStep,
    TargetFinished,
)
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.target_totals import CACHED, RAN

Snapshot = Callable[[str, str], None]
INVOCATION = "00000000-0000-4000-8000-000000000000"


def done(name: str, status: ActionStatus, start: float, end: float, worker: str = "") -> ActionFinished:
    return ActionFinished(
        identifier=f"//m:a {name}",
        mnemonic=name.split()[0],
        owner="//m:a",
        status=status,
        start=start,
        time=end,
        key="ab" * 32,
        worker=worker,
        executor=worker,
        log=b"caf\xc3\xa9 \xff\n" if worker else b"",
        message="it broke" if status is ActionStatus.FAILED else "",
        exit_code=1 if status is ActionStatus.FAILED else 0,
        output_files=(FileEntry(path="out", digest=Digest("cd" * 32, 7)),) if status in RAN | CACHED else (),
    )


PLACED = "mlcbuild-out/default/m/b/b.so"
COUNTS = (1, 1, 0, 2, 0, 0, 1, 1)
STORY: tuple[BuildEvent, ...] = (
    BuildStarted(invocation=INVOCATION, targets=("//m:a", "//m:b"), digest_function="sha256"),
    ActionsAdded(count=6, total=6),
    done("Import", ActionStatus.UP_TO_DATE, 0.01, 0.01),
    done("Export", ActionStatus.DISK_HIT, 0.01, 0.02),
    ActionStarted(identifier="//m:a Phase0", mnemonic="Phase0", executor="local", time=0.1),
    Notice(message="a worker was lost", time=0.15),
    done("Phase0", ActionStatus.EXECUTED_LOCAL, 0.1, 1.1, "local"),
    done("Phase1", ActionStatus.EXECUTED_LOCAL, 0.5, 1.5, "local"),
    done("Link", ActionStatus.FAILED, 1.5, 1.6, "local"),
    done("Package", ActionStatus.SKIPPED, 1.6, 1.6),
    TargetFinished(
        label="//m:b",
        success=True,
        outputs=(PLACED,),
        output_files=(FileEntry(path=PLACED, digest=Digest("ef" * 32, 4096), is_executable=True),),
        time=1.6,
    ),
    TargetFinished(
        label="//m:a",
        success=False,
        error="//m:a Link failed",
        time=1.6,
        blocked_by="//m:a Link",
        ran=2,
        cached=2,
        seconds=2.1,
    ),
    BuildFinished(
        success=False,
        interrupted=False,
        wall_seconds=1.6,
        counts=tuple(zip(ActionStatus, COUNTS, strict=True)),
        critical_path=(
            PathStep(identifier="//m:a Phase0", mnemonic="Phase0", seconds=1.0),
            PathStep(identifier="//m:a Link", mnemonic="Link", seconds=0.1),
        ),
        bytes_downloaded=10,
        bytes_uploaded=20,
        time=1.6,
    ),
)
