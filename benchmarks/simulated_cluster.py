"""A cluster of 1 to 512 workers builds the libraries of 8 models × 4 quantizations × 6 platforms, in virtual time.

    python -m benchmarks.simulated_cluster [--workers 1,2,4,…] [--output json]
    python -m benchmarks.simulated_cluster --record EVENTS > benchmarks/simulated_cluster.json

Method. The workspace is written to a temporary folder, and loaded and analysed by the real rules; the scheduler and the
placement are those of real builds (`mlcbuild.engine.simulation`). Every worker runs one action at a time, and what an
action costs besides its work is `TRIP_SECONDS`. Fetching of inputs, a crowded network and machines that fail are not
simulated.

What is recorded, in simulated_cluster.json, from the event log of one cold build of 8 libraries (tinyllama-1.1b and
llama-3-8b × q0f16 and q4f16_1 × x86-64-v3 and CUDA for sm_90; `--record` says how much of it): the seconds of every
stage; of each kernel the seconds of ScheduleKernel, CompileKernel and CompileDevice; and, by the keys of those actions,
whether a kernel is the same in all models, in all quantizations of one model, or in one library alone.

What is extrapolated: a model takes the kernels and seconds of the recorded one that is nearer in size; a quantization
with q0 those of q0f16, all others those of q4f16_1; kernels are shared among models and quantizations as the recorded
ones are, but never between float16 and float32; every CPU and every GPU architecture costs what the recorded one does;
FatBinary, ResolveModel and ConfigureModel, which were not recorded, cost `SHORT_SECONDS`.

Printed: for each number of workers the seconds of the build, how many times faster than one worker it is, that against
the bound that no schedule can pass (the longest path, and the work shared among all workers), and how well the workers
are used. Then the same with other priorities: the mean seconds of each kind of action, nothing remembered, and no
priorities at all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cli.build.targets import targets_of
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.compiler.manifest import VERSION
from mlcbuild.engine.action import Action
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry, OutcomeKind
from mlcbuild.engine.instructions import Execute
from mlcbuild.engine.scheduler_events import RequestedTarget
from mlcbuild.engine.simulation import LookupResult, RunResult, Simulated, SimulatedExecutor, Simulation
from mlcbuild.rules.analysis import analyse

RECORD = Path(__file__).with_suffix(".json")
# A model that can be resolved: which one it is does not matter, since nothing runs.
_CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
TRIP_SECONDS = 0.01
SHORT_SECONDS = 0.1
_SHORT_STAGES = frozenset({"ConfigureModel", "FatBinary", "ResolveModel"})
# Each with the recorded model that it is taken for.
MODELS = {
    "smollm2-135m": "tinyllama-1.1b",
    "tinyllama-1.1b": "tinyllama-1.1b",
    "llama-3.2-3b": "tinyllama-1.1b",
    "mistral-7b": "llama-3-8b",
    "llama-2-7b": "llama-3-8b",
    "llama-3-8b": "llama-3-8b",
    "llama-2-70b": "llama-3-8b",
    "llama-3-70b": "llama-3-8b",
}
QUANTIZATIONS = ("q0f16", "q0f32", "q4f16_1", "q4f32_1")
PLATFORMS = {
    "v2": 'kind = "cpu"\ncpu = "x86-64-v2"',
    "v3": 'kind = "cpu"\ncpu = "x86-64-v3"',
    "v4": 'kind = "cpu"\ncpu = "x86-64-v4"',
    "sm80": 'kind = "cuda"\narch = ["sm_80"]',
    "sm90": 'kind = "cuda"\narch = ["sm_90"]',
    "sm80-sm90": 'kind = "cuda"\narch = ["sm_80", "sm_90"]',
}
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_KERNEL_STAGES = ("ScheduleKernel", "CompileKernel", "CompileDevice")


def record(events: Iterable[str]) -> dict[str, Any]:
    """What a cold build of the eight libraries took, from the lines of its event log."""
    finished = [event for line in events if (event := json.loads(line))["event"] == "action_finished"]
    seconds = {event["key"]: event["time"] - event["start"] for event in finished if event["executor"]}
    stages: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    kernels: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    cells_of: dict[str, set[str]] = defaultdict(set)
    for event in finished:
        cell = _recorded_cell(event["owner"])
        if cell is None:
            continue
        model, quantization, kind = cell
        if event["mnemonic"] in _KERNEL_STAGES:
            name = event["identifier"].split()[2]
            of_cell = kernels[f"{model} {quantization} {kind}"]
            of_cell.setdefault(name, {})[event["mnemonic"]] = round(seconds[event["key"]], 3)
            if event["mnemonic"] == "ScheduleKernel":
                of_cell.setdefault(name, {})["key"] = event["key"]
                cells_of[event["key"]].add(f"{model} {quantization}")
        elif event["key"] in seconds:
            stages[event["mnemonic"]][model].append(seconds[event["key"]])
    return {
        "stages": {
            mnemonic: {model: round(statistics.fmean(taken), 3) for model, taken in sorted(of_models.items())}
            for mnemonic, of_models in sorted(stages.items())
        },
        # Each as how widely it is shared, the first digits of its key, and the seconds of its stages.
        "kernels": {
            cell: [
                [
                    _shared(cells_of[kernel["key"]]),
                    kernel["key"][:8],
                    *(kernel[stage] for stage in _KERNEL_STAGES if stage in kernel),
                ]
                for _, kernel in sorted(of_cell.items())
            ]
            for cell, of_cell in sorted(kernels.items())
        },
    }


def _recorded_cell(owner: str) -> tuple[str, str, str] | None:
    name = owner.partition(":")[2]
    for model in ("tinyllama-1.1b", "llama-3-8b"):
        if name.startswith(f"{model}-q"):
            quantization, _, platform = name.removeprefix(f"{model}-").partition("-")
            return model, quantization, "cuda" if platform.startswith("cuda") else "cpu"
    return None


def _shared(cells: set[str]) -> str:
    if len({cell.split()[0] for cell in cells}) > 1:
        return "everywhere"
    return "model" if len(cells) > 1 else "library"


@dataclass(frozen=True, slots=True)
class Cell:
    """One library of the matrix."""

    model: str
    quantization: str
    platform: str

    @property
    def kind(self) -> str:
        return "cuda" if "cuda" in PLATFORMS[self.platform] else "cpu"

    @property
    def recorded(self) -> str:
        """The recorded library whose kernels it has."""
        quantization = "q0f16" if self.quantization.startswith("q0") else "q4f16_1"
        return f"{MODELS[self.model]} {quantization} {self.kind}"


class Matrix:
    """The libraries' actions by the real rules, and what each comes to."""

    def __init__(self, recorded: dict[str, Any]) -> None:
        self._stages = recorded["stages"]
        self._kernels = recorded["kernels"]
        self._cells = {
            f"//:{model}-{quantization}-{platform}": Cell(model, quantization, platform)
            for model in MODELS
            for quantization in QUANTIZATIONS
            for platform in PLATFORMS
        }
        self._contents: dict[Digest, bytes] = {}
        self._seconds: dict[tuple[str, str], float] = {}  # of kernels, by mnemonic and name
        self._known: dict[str, list[str]] = {}  # names of kernels by library
        self.actions, self.targets = self._analysed()

    def _analysed(self) -> tuple[tuple[Action, ...], list[RequestedTarget]]:
        parts = ['[workspace]\nname = "simulated"\ndefault_platform = ":v3"\n']
        parts += [f'[[platform]]\nname = "{name}"\n{attributes}\n' for name, attributes in PLATFORMS.items()]
        parts += [f'[[model]]\nname = "{model}"\nconfig = "{model}.json"\n' for model in MODELS]
        parts += [
            f'[[model_library]]\nname = "{label.removeprefix("//:")}"\nmodel = ":{cell.model}"\n'
            f'quantization = "{cell.quantization}"\nplatform = ":{cell.platform}"\n'
            for label, cell in self._cells.items()
        ]
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "BUILD.toml").write_text("\n".join(parts), encoding="utf-8")
            for model in MODELS:
                (root / f"{model}.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
            workspace = open_workspace(root)
            analysis = analyse(workspace.load(("//:all",), ""), workspace.rules)
            libraries = [target for target in analysis.requested if str(target.label) in self._cells]
            return tuple(analysis.actions), targets_of(libraries, output="out")

    # Work, as the simulation asks for it.

    def source(self, path: str) -> Digest:
        return _digest(path)

    def key_of(self, action: Action, inputs: tuple[FileEntry, ...]) -> Digest:
        return _digest(repr((action.mnemonic, action.command, action.outputs, inputs)))

    def look_up(self, action: Action, key: Digest) -> LookupResult:  # noqa: ARG002
        return LookupResult()

    def run(self, execute: Execute) -> RunResult:
        action = execute.action
        outputs = []
        for path in action.outputs:
            if path.endswith("kernels/"):
                outputs += [
                    FileEntry(path=f"{path}{name}.json", digest=_digest(name)) for name in self._names(action.owner)
                ]
            elif path == action.manifest:
                outputs.append(FileEntry(path=path, digest=self._manifest(action.owner)))
            else:
                outputs.append(FileEntry(path=path, digest=_digest(f"{execute.key.hash} {path}")))
        outcome = ExecutionOutcome(
            identifier=action.identifier, kind=OutcomeKind.SUCCEEDED, outputs=tuple(sorted(outputs))
        )
        return RunResult(seconds=self.seconds_of(action), outcome=outcome)

    def manifest(self, digest: Digest) -> bytes:
        return self._contents[digest]

    # What is recorded of them.

    def seconds_of(self, action: Action) -> float:
        if action.mnemonic in _SHORT_STAGES:
            return SHORT_SECONDS
        if action.mnemonic in _KERNEL_STAGES:
            return self._seconds[action.mnemonic, action.identifier.split()[2]]
        of_models: dict[str, float] = self._stages[action.mnemonic]
        return of_models[MODELS[self._cells[action.owner].model]]

    def _names(self, owner: str) -> list[str]:
        """The kernels of a library: equal names stand for equal kernels."""
        if owner in self._known:
            return self._known[owner]
        cell = self._cells[owner]
        width = cell.quantization[2:5]
        names = []
        for shared, key, *seconds in self._kernels[cell.recorded]:
            parts = {
                "everywhere": (cell.kind, width),
                "model": (cell.model, cell.kind, width),
                "library": (cell.model, cell.kind, cell.quantization),
            }[shared]
            name = "-".join((*parts, key))
            for stage, taken in zip(_KERNEL_STAGES, seconds, strict=False):
                self._seconds.setdefault((stage, name), taken)
            names.append(name)
        self._known[owner] = names
        return names

    def _manifest(self, owner: str) -> Digest:
        data = json.dumps({"version": VERSION, "kernels": self._names(owner)}).encode()
        digest = _digest(data.decode())
        self._contents[digest] = data
        return digest


def _digest(text: str) -> Digest:
    return Digest(sha256(text.encode()).hexdigest(), len(text))


def simulate(matrix: Matrix, workers: int, seconds_of: Callable[[Action], float]) -> Simulated:
    """Raises RuntimeError where the build fails, because its seconds would mean nothing."""
    simulated = Simulation(
        actions=matrix.actions,
        targets=matrix.targets,
        work=matrix,
        executors=[SimulatedExecutor(name="ray", slots=workers, trip_seconds=TRIP_SECONDS)],
        seconds_of=seconds_of,
    ).run()
    if not simulated.success:
        raise RuntimeError(next(report.message for report in simulated.reports.values() if report.message))
    return simulated


def measure(workers: Sequence[int]) -> dict[str, Any]:
    matrix = Matrix(json.loads(RECORD.read_text(encoding="utf-8")))
    one = simulate(matrix, 1, matrix.seconds_of)
    by_mnemonic: dict[str, list[float]] = defaultdict(list)
    for run in one.runs:
        by_mnemonic[run.execute.action.mnemonic].append(run.end - run.start)
    means = {mnemonic: statistics.fmean(taken) for mnemonic, taken in by_mnemonic.items()}
    priorities: dict[str, Callable[[Action], float]] = {
        "by action": matrix.seconds_of,
        "by mnemonic": lambda action: means[action.mnemonic],
        "nothing remembered": lambda _action: 1.0,
        "no priorities": lambda _action: 0.0,
    }
    path = one.path()
    longest = sum(step.seconds for step in path)
    rows = []
    for count in workers:
        taken = {name: simulate(matrix, count, seconds_of).seconds for name, seconds_of in priorities.items()}
        bound = max(longest, one.work_seconds / count)
        rows.append(
            {
                "workers": count,
                "seconds": round(taken["by action"], 1),
                "speed-up": round(one.seconds / taken["by action"], 1),
                "bound": round(one.seconds / bound, 1),
                "of the bound": round(bound / taken["by action"], 3),
                "workers used": round(one.work_seconds / count / taken["by action"], 3),
                "other priorities": {name: round(other, 1) for name, other in taken.items() if name != "by action"},
            }
        )
    return {
        "libraries": len(matrix.targets),
        "actions": len(one.reports),
        "ran": len(one.runs),
        "work seconds": round(one.work_seconds, 1),
        "longest path": {
            "seconds": round(longest, 1),
            "steps": [f"{step.identifier} {step.seconds:.1f} s" for step in path],
        },
        "rows": rows,
    }


def table(told: dict[str, Any]) -> str:
    """As in docs/scheduling.md."""
    path = told["longest path"]
    lines = [
        f"{told['libraries']} libraries: {told['actions']:,} actions, of which {told['ran']:,} have keys of their own "
        f"and run; {told['work seconds']:,.0f} s of work, longest path {path['seconds']} s.",
        "",
        "| workers | seconds | faster than one | at most | of that | workers used | by mnemonic | nothing remembered "
        "| no priorities |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in told["rows"]:
        others = [_longer(other / row["seconds"] - 1) for other in row["other priorities"].values()]
        cells = [
            str(row["workers"]),
            f"{row['seconds']:,.1f}",
            f"{row['speed-up']}×",
            f"{row['bound']}×",
            f"{100 * row['of the bound']:.1f} %",
            f"{100 * row['workers used']:.0f} %",
            *others,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _longer(share: float) -> str:
    percent = round(100 * share, 1)
    return f"{percent:+.1f} %" if percent else "0.0 %"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", default=",".join(map(str, WORKERS)), help="numbers of workers, with commas")
    parser.add_argument("--record", type=Path, metavar="EVENTS", help="print the record of a build's event log")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    if arguments.record:
        with arguments.record.open(encoding="utf-8") as lines:
            print(json.dumps(record(lines)).replace("]], ", "]],\n").replace("}, ", "},\n"))
        return 0
    told = measure([int(count) for count in arguments.workers.split(",")])
    print(json.dumps(told, indent=2) if arguments.output == "json" else table(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
