"""The time of a GPU library from an empty cache: against plain TVM, and for many layers against few.

    python -m benchmarks.cold_build [--model llama-2-70b] [--layers 8] [--rounds 3] [--without-plain]

Method. Each round does three things in turn on the same machine:

- mlcbuild builds the library of `models/MODEL` from an empty cache: a whole command, with one worker per processor;
- plain TVM does the same work in one process (`benchmarks.plain_tvm`): the same export, passes and kernels, with TVM's
  own schedules, and with NVRTC called by TVM's own callback;
- mlcbuild builds the same model with `--layers` layers from an empty cache.

Files are in the operating system's cache. It prints JSON: the seconds of all rounds, ratios of their medians, and the
seconds of each stage, summed over its actions, of the median round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.incremental_place import PROJECT, Build, NotMeasuredError, Place
from benchmarks.ratios import of_medians

_FEWER = "fewer-layers"


def measure(model: str, layers: int, rounds: int, *, plain: bool, folder: Path) -> dict[str, Any]:
    """Raises NotMeasuredError where a build fails."""
    shapes = folder / "shapes"
    config = json.loads((PROJECT / "models" / model / "config.json").read_text())
    for name, document in ((model, config), (_FEWER, config | {"num_hidden_layers": layers})):
        (shapes / name).mkdir(parents=True)
        (shapes / name / "config.json").write_text(json.dumps(document))
    place = Place(folder, (model, _FEWER), shapes)
    many, few, baseline = list[Build](), list[Build](), list[dict[str, Any]]()
    for number in range(rounds):
        many.append(_cold(place, model))
        if plain:
            baseline.append(_plain(shapes / model / "config.json", folder / "plain.so"))
        few.append(_cold(place, _FEWER))
        print(f"round {number + 1} of {rounds} is done", file=sys.stderr, flush=True)
    told: dict[str, Any] = {
        "model": model,
        "processors": os.cpu_count(),
        "layers": config["num_hidden_layers"],
        "mlcbuild": _told(many),
        f"mlcbuild, {layers} layers": _told(few),
        "many layers against few": of_medians([one.seconds for one in many], [one.seconds for one in few]),
    }
    if baseline:
        wholes = [one["whole"] for one in baseline]
        told["plain TVM"] = {"seconds": wholes, "steps": baseline[_middle(wholes)]}
        told["mlcbuild against plain TVM"] = of_medians([one.seconds for one in many], wholes)
    return told


def _cold(place: Place, name: str) -> Build:
    place.forget()
    return place.build(f"{name}-cuda")


def _plain(config: Path, library: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.plain_tvm", "--config", str(config), str(library)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMeasuredError(f"{' '.join(command)} failed:\n{done.stderr}")
    steps: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return steps


def _told(builds: Sequence[Build]) -> dict[str, Any]:
    seconds = [round(build.seconds, 1) for build in builds]
    middle = builds[_middle(seconds)]
    return {
        "seconds": seconds,
        "processor seconds": [round(build.processor_seconds, 1) for build in builds],
        "actions": middle.executed,
        "stages": {mnemonic: round(took, 2) for mnemonic, took in middle.took.items()},
    }


def _middle(seconds: Sequence[float]) -> int:
    return seconds.index(statistics.median_low(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-2-70b")
    parser.add_argument("--layers", type=int, default=8, help="of the smaller one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-plain", action="store_true", help="leave out plain TVM, which takes the longest")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cold-") as folder:
        try:
            told = measure(given.model, given.layers, given.rounds, plain=not given.without_plain, folder=Path(folder))
        except NotMeasuredError as error:
            raise SystemExit(str(error)) from error
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
