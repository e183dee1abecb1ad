"""MeasureModels: compiled models of several compilers, each called by its own runtime in its own environment.

Reads `cases` (of ReferenceOutputs) and, for the model number N, `artifact_N`, the plug-in `runtime_N`, and the
environment whose number the model has, `environment_M`; writes `measured`. In each round every model is loaded and
called once in turn, in a process of its own, and nothing else of this action runs meanwhile. So what slows the machine
down for a while slows all of them down. The median of the rounds counts. A model that cannot be loaded, crashes or
takes too long is told in `measured`, and costs the others nothing.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.compiler.environments.programs import measure_model
from mlcbuild.compiler.stages.run_in_environment import run_program, source_of
from mlcbuild.errors import StageError
from mlcbuild.runtime.measuring.processor import processor_name

VERSION = 1
_GRACE_SECONDS = 120.0  # of a process: to start, to import its runtime, and to load


def run(
    *,
    cases: Path,
    measured: Path,
    models: Sequence[Mapping[str, Any]],
    rounds: int,
    seconds: float,
    threads: int,
    **arguments: Any,
) -> None:
    """`models` has an object for each model, in the order of their numbers: the number of its `environment`, `options`
    of its runtime, and what `measured` says of it unchanged. `seconds` are those of one case of one round. `threads` 0
    is one for each core that this process may use."""
    threads = threads or len(os.sched_getaffinity(0))
    sizes = json.loads((cases / "cases.json").read_text(encoding="utf-8"))["sizes"]
    found: list[list[dict[str, Any]]] = [[] for _ in models]
    failures: dict[int, str] = {}
    for _ in range(rounds):
        for number, model in enumerate(models):
            if number in failures:
                continue
            report = Path(".tmp", "round.json")
            try:
                run_program(
                    arguments[f"environment_{model['environment']}"],
                    measure_model.run,
                    {
                        "artifact": arguments[f"artifact_{number}"],
                        "runtime": source_of(arguments[f"runtime_{number}"]),
                        "cases": cases,
                        "report": report,
                        "threads": threads,
                        "seconds": seconds,
                        "options": model["options"],
                    },
                    seconds=_GRACE_SECONDS + 10 * seconds * len(sizes),
                )
            except StageError as error:
                failures[number] = str(error)
            else:
                found[number].append(json.loads(report.read_text(encoding="utf-8")))
    document = {
        "version": VERSION,
        "machine": processor_name(),
        "threads": threads,
        "rounds": rounds,
        "models": [
            {
                **{name: value for name, value in model.items() if name not in ("options", "environment")},
                "bytes": _bytes_of(arguments[f"artifact_{number}"]),
                **_summary(found[number], sizes, failures.get(number, "")),
            }
            for number, model in enumerate(models)
        ],
    }
    measured.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _summary(rounds: Sequence[Mapping[str, Any]], sizes: Sequence[int], failure: str) -> dict[str, Any]:
    """What the rounds of one model come to; only why there is nothing, where one of them failed."""
    if failure:
        return {"failure": failure}
    return {
        "load_seconds": statistics.median(each["load_seconds"] for each in rounds),
        "peak_bytes": max(each["peak_bytes"] for each in rounds),
        "cases": [_case([each["cases"][index] for each in rounds]) for index in range(len(sizes))],
    }


def _case(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    size = rounds[0]["size"]
    for each in rounds:
        if "failure" in each:
            return {"size": size, "failure": each["failure"]}
    seconds = [each["seconds"] for each in rounds]
    median = statistics.median(seconds)
    return {
        "size": size,
        "first_seconds": statistics.median(each["first_seconds"] for each in rounds),
        "seconds": median,
        "spread": (max(seconds) - min(seconds)) / median,
        "calls": sum(each["calls"] for each in rounds),
        "error": max(each["error"] for each in rounds),
        "largest": rounds[0]["largest"],
    }


def _bytes_of(artifact: Path) -> int:
    files = artifact.rglob("*") if artifact.is_dir() else [artifact]
    return sum(file.stat().st_size for file in files if file.is_file())
