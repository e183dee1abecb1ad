"""The time of a no-op build of 10,000 actions, against ninja on the same graph.

    python -m benchmarks.no_op_against_ninja [--actions N] [--rounds N] [--folder DIR]

Method. One graph of real commands (`command_targets.py`) is written as a workspace and as a `build.ninja`, in two
folders. Both are built once, and again until there is nothing to do. Then `mlcbuild build //...` and `ninja` are
started in turn, round after round, with all files in the kernel's caches. Both check all actions; mlcbuild also
prints the path of every output. It prints medians, minima, and the ratio of each round, which must be below 6.

`ninja` is searched beside this Python and in PATH (`pip install ninja`). With `--folder` the built folders stay, so
that the next run with the same number of actions only measures.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.command_targets import build, settle, write_ninja, write_workspace

BOUND = 6.0


def ninja() -> str:
    beside = Path(sys.executable).with_name("ninja")
    found = str(beside) if beside.exists() else shutil.which("ninja")
    if found is None:
        raise SystemExit("no ninja: pip install ninja")
    return found


def run_ninja(folder: Path) -> tuple[float, str]:
    begin = time.perf_counter()
    ended = subprocess.run([ninja()], cwd=folder, check=True, capture_output=True, text=True)
    return time.perf_counter() - begin, ended.stdout


@contextlib.contextmanager
def place(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    made = Path(tempfile.mkdtemp(prefix="mlcbuild-no-op-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def prepare(folder: Path, actions: int) -> None:
    if not (folder / "ours").exists():
        write_workspace(folder / "ours", actions)
        seconds, _ = build(folder / "ours", folder / "cache")
        print(f"built once: mlcbuild {seconds:.1f} s", end="", flush=True)
        write_ninja(folder / "ninja", actions)
        seconds, _ = run_ninja(folder / "ninja")
        print(f", ninja {seconds:.1f} s")
        time.sleep(2)
    settle(folder / "ours", folder / "cache")
    run_ninja(folder / "ninja")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with place(arguments.folder) as folder:
        prepare(folder, arguments.actions)
        seconds: dict[str, list[float]] = {"mlcbuild": [], "ninja": []}
        for _ in range(arguments.rounds):
            took, told = build(folder / "ours", folder / "cache")
            if f"{arguments.actions} up to date" not in told.replace(",", ""):
                raise SystemExit(f"something was done: {told}")
            seconds["mlcbuild"].append(took)
            took, told = run_ninja(folder / "ninja")
            if "no work to do" not in told:
                raise SystemExit(f"ninja did something: {told}")
            seconds["ninja"].append(took)
        for name, measured in seconds.items():
            least, median = min(measured) * 1000, statistics.median(measured) * 1000
            print(f"{name:8} {arguments.actions:,} actions: median {median:.0f} ms, least {least:.0f} ms")
        ratios = sorted(ours / theirs for ours, theirs in zip(*seconds.values(), strict=True))
        print(f"ratio: median {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), bound {BOUND:.0f}")


if __name__ == "__main__":
    main()
