"""Two machines that build a shard each of a matrix, against one machine that builds all of it.

    python -m benchmarks.shards [--shards N] [--jobs N]

Method. A workspace has a matrix of 27 cells: three small llamas, three quantizations, and three platforms, of which
one cannot compute in bfloat16, so that three cells are skipped. Each machine is a copy of the workspace with a home and
an empty cache of its own; they build one after the other.

- **whole**: one machine builds `//...`, and writes its timings.
- **shards, estimated**: N machines build `//... --shard I/N`.
- **shards, by timings**: N machines build `//... --shard I/N --timings` with the timings of the first one.

It prints, for each way, the wall seconds and the seconds of all runs together of each machine, the slowest shard as a
multiple of an equal part of the whole, and the share of the whole's kernel actions that run on more than one machine.
For the multiple, each action counts with the seconds that it took on the first machine: so it tells how well the work
was split, whatever else the machine does meanwhile. It fails if a cell is missing or is on two machines.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.incremental_place import PROJECT

KERNEL_MNEMONICS = frozenset({"ScheduleKernel", "CompileKernel", "CompileDevice", "FatBinary"})
BUILD_FILE = """\
[workspace]
name = "shards"

[[model]]
name = "{size}"
matrix = { size = ["small", "medium", "large"] }
config = "{size}/config.json"

[[model_library]]
name = "{model}-{quantization}-{platform}"
matrix.model = [":small", ":medium", ":large"]
matrix.quantization = ["q0f32", "q4f16_1", "q4bf16_1"]
matrix.platform = ["@platforms//:cpu", "@platforms//:sm_75", "@platforms//:sm_90"]
"""
HIDDEN_SIZES = {"small": 64, "medium": 96, "large": 128}


@dataclass(frozen=True, kw_only=True)
class Built:
    """What one machine built: its targets, the seconds of each key that ran, the kernels among them, and how long."""

    targets: frozenset[str]
    seconds: Mapping[str, float]
    kernels: frozenset[str]
    wall_seconds: float
    run_seconds: float


def config(hidden_size: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 320,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    }


def write_workspace(root: Path) -> None:
    root.mkdir(parents=True)
    (root / "BUILD.toml").write_text(BUILD_FILE)
    for name, size in HIDDEN_SIZES.items():
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(config(size)))


class Machine:
    """A workspace with a home and an empty cache below a folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "workspace"
        write_workspace(self.root)
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONPATH": str(PROJECT),
        }

    def mlcbuild(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "mlcbuild.cli.main", *arguments]
        ended = subprocess.run(
            command, cwd=self.root, env=self._environment, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            raise SystemExit(f"{' '.join(arguments)} failed:\n{ended.stderr[-3000:]}")
        return ended.stdout

    def build(self, *arguments: str) -> Built:
        began = time.perf_counter()
        report = json.loads(self.mlcbuild("build", "//...", "--output=json", *arguments))
        wall_seconds = time.perf_counter() - began
        results = report["action_results"]
        ran = [name for name, each in results.items() if each["status"].startswith("executed")]
        return Built(
            targets=frozenset(report["targets"]),
            seconds={report["keys"][name]: results[name]["seconds"] for name in ran},
            kernels=frozenset(report["keys"][name] for name in ran if results[name]["mnemonic"] in KERNEL_MNEMONICS),
            wall_seconds=wall_seconds,
            run_seconds=sum(results[name]["seconds"] for name in ran),
        )


def check_complete(whole: Built, shards: Sequence[Built]) -> None:
    """Every target is on exactly one machine."""
    places = Counter(label for shard in shards for label in shard.targets)
    if places != Counter(whole.targets):
        wrong = {label: places[label] for label in whole.targets | places.keys() if places[label] != 1}
        raise SystemExit(f"targets that are not on exactly one machine: {wrong}")


def printed(name: str, machines: Sequence[Built], whole: Built) -> str:
    walls = " + ".join(f"{machine.wall_seconds:.0f}" for machine in machines)
    runs = " + ".join(f"{machine.run_seconds:.0f}" for machine in machines)
    at_whole = [sum(whole.seconds.get(key, 0.0) for key in machine.seconds) for machine in machines]
    slowest = max(at_whole) * len(machines) / sum(whole.seconds.values())
    places = Counter(kernel for machine in machines for kernel in machine.kernels)
    twice = sum(count - 1 for count in places.values())
    share = twice / len(whole.kernels)
    return (
        f"{name:<22} wall {walls} s, runs {runs} s, slowest {slowest:.2f} of an equal part, "
        f"kernel actions {sum(len(machine.kernels) for machine in machines):,}, {share:.1%} of the whole's run again"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shards", type=int, default=2, help="machines that share the work (default: 2)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="actions at a time")
    options = parser.parse_args()
    count, jobs = options.shards, f"--jobs={options.jobs}"
    with tempfile.TemporaryDirectory(prefix="mlcbuild-shards-") as place:
        folder = Path(place)
        first = Machine(folder / "whole")
        whole = first.build(jobs)
        timings = folder / "timings.json"
        first.mlcbuild("matrix", "//...", f"--write-timings={timings}")
        print(f"{len(whole.targets)} targets, timings of {timings.stat().st_size / 1000:.0f} kB", flush=True)
        print(printed("whole", [whole], whole), flush=True)
        for name, how in (("shards, estimated", ()), ("shards, by timings", (f"--timings={timings}",))):
            shards = []
            for number in range(1, count + 1):
                machine_folder = folder / f"{name} {number}"
                shards.append(Machine(machine_folder).build(jobs, f"--shard={number}/{count}", *how))
                shutil.rmtree(machine_folder)
            check_complete(whole, shards)
            print(printed(name, shards, whole), flush=True)


if __name__ == "__main__":
    main()
