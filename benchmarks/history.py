"""The seconds and bytes of the history of builds: writing a record, and `mlcbuild log` over all of them.

    python -m benchmarks.history [--builds N] [--actions N] [--large N] [--rounds N]

Method. A workspace in a temporary folder gets the records of as many builds as are kept, each with so many actions of
which a tenth ran, two outputs each, and as many builds with nothing to do. One more record, of a large build, is
written and timed in this process. Then `mlcbuild log`, its JSON and `mlcbuild log --target` are started as a user
starts them; `mlcbuild --help` is started in turn with them, as the least that a command takes.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.cli.log.no_op_builds import append_no_op
from mlcbuild.cli.log.recording import write_record
from mlcbuild.cli.log.records import records
from mlcbuild.cli.settings.history import HistoryLimits
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, BuildEvent, BuildFinished, BuildStarted, Cause
from mlcbuild.engine.executor import FileEntry

_PROGRAM = str(Path(sys.executable).parent / "mlcbuild")
_BEGAN = 1_700_000_000.0
_TARGETS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", type=int, default=500)
    parser.add_argument("--actions", type=int, default=250, help="of each build")
    parser.add_argument("--large", type=int, default=10_000, help="actions of one more build")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "BUILD.toml").write_text('[workspace]\nname = "history"\n')
        directory = root / ".mlcbuild/builds"
        limits = HistoryLimits(builds=arguments.builds + 1)
        for number in range(arguments.builds):
            _write(directory, number, arguments.actions, limits)
            append_no_op(
                directory,
                began=_BEGAN + number * 60 + 30,
                arguments=["build", "//..."],
                targets=[_target(index) for index in range(_TARGETS)],
                actions=arguments.actions,
                wall_seconds=0.1,
            )
        print(f"{arguments.builds:,} builds of {arguments.actions:,} actions: {_size(directory):,} bytes")
        before, begin = _size(directory), time.perf_counter()
        _write(directory, arguments.builds, arguments.large, limits)
        print(
            f"a record of {arguments.large:,} actions: {time.perf_counter() - begin:.2f} s, "
            f"{_size(directory) - before:,} bytes"
        )
        begin = time.perf_counter()
        read = sum(1 for _ in records(directory)[0].actions())
        print(f"its {read:,} actions are read in {time.perf_counter() - begin:.2f} s")
        commands = {
            "mlcbuild --help": ["--help"],
            "mlcbuild log": ["log"],
            "mlcbuild log --limit 0": ["log", "--limit", "0"],
            "mlcbuild log --output json": ["log", "--output", "json"],
            "mlcbuild log --target": ["log", "--target", _target(0), "--limit", "0"],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(arguments.rounds):
            for name, command in commands.items():
                begin = time.perf_counter()
                subprocess.run([_PROGRAM, *command], cwd=root, check=True, capture_output=True)
                seconds[name].append(time.perf_counter() - begin)
        for name, measured in seconds.items():
            print(
                f"{name:28} median {statistics.median(measured) * 1000:6.0f} ms, least {min(measured) * 1000:6.0f} ms"
            )


def _target(number: int) -> str:
    return f"//models/family:library-{number:03}-cuda"


def _write(directory: Path, number: int, actions: int, limits: HistoryLimits) -> None:
    events: list[BuildEvent] = [
        BuildStarted(
            invocation=f"{number:08x}-0000-4000-8000-000000000000",
            targets=tuple(_target(index) for index in range(_TARGETS)),
            jobs=8,
            digest_function="blake3",
        )
    ]
    statuses = {ActionStatus.EXECUTED_LOCAL: 0, ActionStatus.UP_TO_DATE: 0}
    for index in range(actions):
        ran = index % 10 == 0
        status = ActionStatus.EXECUTED_LOCAL if ran else ActionStatus.UP_TO_DATE
        statuses[status] += 1
        owner = _target(index % _TARGETS)
        kernel = f"kernel_{_hash(index)[:12]}"
        events.append(
            ActionFinished(
                identifier=f"{owner} CompileKernel {kernel}",
                mnemonic="CompileKernel",
                owner=owner,
                status=status,
                start=index * 0.01,
                time=index * 0.01 + (0.8 if ran else 0.0),
                key=_hash(f"{number if ran else 0} {index}"),
                worker="local" if ran else "",
                executor="local" if ran else "",
                cause=Cause.CHANGED if ran else None,
                title=f"{owner} CompileKernel dequantize_matmul qkv_proj 6144×4096 ·×n decode ({kernel[-8:]})",
                details={"kernel": kernel, "functions": ["decode", "prefill"], "shape": [6144, 4096]},
                output_files=tuple(
                    FileEntry(path=name, digest=Digest(_hash(f"{name} {index}"), 4096)) for name in ("object", "launch")
                ),
            )
        )
    counts = tuple((status, statuses.get(status, 0)) for status in ActionStatus)
    events.append(BuildFinished(success=True, interrupted=False, wall_seconds=12.0, counts=counts))
    write_record(
        directory,
        events,
        began=_BEGAN + number * 60,
        arguments=["build", "//..."],
        exit_code=0,
        limits=limits,
    )


def _hash(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


if __name__ == "__main__":
    main()
