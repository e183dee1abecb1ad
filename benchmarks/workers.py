"""Workers: a cold build with one, with two, and by Ray; a build after an edited pass with cold and with warm workers.

    unshare --net sh -c 'ip link set lo up && exec python -m benchmarks.workers [--model llama-2-70b] [--rounds 3]'

Method. Each round builds, in turn on the same machine, the library of `models/MODEL` for GPUs from an empty cache, as
a whole command: with `--jobs=1`, with `--jobs=2`, and by a Ray cluster of two CPUs that the build starts and ends.
Files are in the operating system's cache. Then a constant is added to a pass of Phase1, another one each time, and
the next build, in which only that pass runs, is timed: with new workers, and with warm ones, in turn. Ray listens on
all addresses, hence the namespace. It prints the seconds of all rounds and ratios of their medians.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.incremental_place import PROJECT, RACY_SECONDS, NotMeasuredError, Place
from benchmarks.ratios import of_medians

_COLD = {"1 worker": ("--jobs=1",), "2 workers": ("--jobs=2",), "Ray, 2 CPUs": ("--jobs=2", "--executor=ray")}
_EDITED = {"cold workers": ("--workers=cold",), "warm workers": ("--workers=warm",)}
_PASS = "mlcbuild/compiler/passes/fuse_transpose_matmul.py"


def measure(model: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Raises NotMeasuredError where a build fails."""
    place = Place(folder, (model,), PROJECT / "models")
    target = f"{model}-cuda"
    cold: dict[str, list[float]] = {name: [] for name in _COLD}
    for number in range(rounds):
        for name, options in _COLD.items():
            place.forget()
            cold[name].append(round(place.build(target, *options).seconds, 1))
        print(f"round {number + 1} of {rounds} is done", file=sys.stderr, flush=True)
    edited = _edited(place, target, 2 * rounds)
    return {
        "model": model,
        "cold": cold,
        "2 workers against 1": of_medians(cold["2 workers"], cold["1 worker"]),
        "Ray against 2 workers": of_medians(cold["Ray, 2 CPUs"], cold["2 workers"]),
        "edited pass": edited,
        "warm against cold workers": of_medians(edited["warm workers"], edited["cold workers"]),
    }


def _edited(place: Place, target: str, rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in _EDITED}
    text = (place.code / _PASS).read_text()
    number = 0
    try:
        for counted in (False, *(True for _ in range(rounds))):  # The first starts the warm workers.
            for name, options in _EDITED.items():
                number += 1
                place.write(place.code / _PASS, f"{text}\n_ONE_CONSTANT_MORE = {number}\n")
                time.sleep(RACY_SECONDS)
                build = place.build(target, *options)
                if build.ran != {"Phase1": 1}:
                    raise NotMeasuredError(f"more or less than Phase1 ran: {build.ran}")
                if counted:
                    seconds[name].append(round(build.seconds, 2))
    finally:
        place.shut_down()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-2-70b")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="workers-") as folder:
        try:
            told = measure(given.model, given.rounds, Path(folder))
        except NotMeasuredError as error:
            raise SystemExit(str(error)) from error
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
