"""Runs a compiled layer by its own runtime, as comparisons do, for one case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlcbuild.compiler.environments.programs import measure_model
from mlcbuild.compiler.stages.run_in_environment import run_program, source_of


def run(
    *,
    artifact: Path,
    environment: Path,
    cases: Path,
    report: Path,
    runtime: Callable[..., Any],
    options: Mapping[str, Any],
) -> None:
    given = {"artifact": artifact, "runtime": source_of(runtime), "cases": cases, "report": report}
    run_program(environment, measure_model.run, {**given, "threads": 1, "seconds": 0.0, "options": options})
