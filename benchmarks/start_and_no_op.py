"""The time of a command that has nothing to do, in starts of bare Python.

    python -m benchmarks.start_and_no_op [--workspace DIR] [--rounds N] [PATTERN …]

Method. `python -c pass`, `mlcbuild --help` and `mlcbuild build PATTERN …` (run once before, so that all is up to
date) are started in turn, round after round, so that all three meet the same noise of the machine. It prints the
median and minimum of each in milliseconds, and the median and spread of the ratios to bare Python in the same round.
Bytecode is written before, as an installed package has it, whatever PYTHONDONTWRITEBYTECODE says.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", default=["//models:smollm2-135m-cpu"])
    parser.add_argument("--workspace", type=Path, default=Path())
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    program = str(Path(sys.executable).parent / "mlcbuild")
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "mlcbuild --help": [program, "--help"],
        "mlcbuild build": [program, "build", *arguments.patterns],
    }
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(commands["mlcbuild build"], cwd=arguments.workspace, check=True, capture_output=True)
    subprocess.run(commands["mlcbuild --help"], check=True, capture_output=True)
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(arguments.rounds):
        for name, command in commands.items():
            begin = time.perf_counter()
            ended = subprocess.run(command, cwd=arguments.workspace, check=True, capture_output=True, text=True)
            seconds[name].append(time.perf_counter() - begin)
            if name == "mlcbuild build" and " ran (" in ended.stderr:
                raise SystemExit("something was executed: this is no measure of a build with nothing to do")
    bare = seconds["python -c pass"]
    for name, measured in seconds.items():
        ratios = sorted(each / base for each, base in zip(measured, bare, strict=True))
        print(
            f"{name:16} median {statistics.median(measured) * 1000:6.0f} ms, least {min(measured) * 1000:6.0f} ms"
            f"   ratio {statistics.median(ratios):5.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})"
        )


if __name__ == "__main__":
    main()
