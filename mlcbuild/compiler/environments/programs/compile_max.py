"""`source`, a Python file that makes a graph → `compiled` and `description`: MAX's compiler, for this processor. Needs
max.

Weights are not compiled: whoever loads the model gives them by name. MAX's own cache is empty in each run, so that
nothing is taken from it.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NAME = "model"


def run(*, source: Path, compiled: Path, description: Path, function: str, arguments: Mapping[str, Any]) -> None:
    """`function` returns the graph and its weights, as a list."""
    atexit.register(_end)  # the last that Python does, as the first that was registered
    folder = Path(os.environ["TMPDIR"]).resolve()
    os.environ |= {"MODULAR_CACHE_DIR": str(folder / "modular"), "MODULAR_TELEMETRY_ENABLED": "0"}
    from max import driver, engine

    graph, weights = _made(source, function, arguments)
    try:
        session = engine.InferenceSession(devices=[driver.CPU()])
        session.compile(graph).export_mef(str(compiled))
    except Exception as error:
        told = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise SystemExit(f"MAX cannot compile the model: {told}") from None
    described = [
        {"name": each.name, "type": str(each.dtype.to_numpy()), "shape": [int(size) for size in each.shape]}
        for each in sorted(weights, key=lambda each: str(each.name))
    ]
    description.write_text(json.dumps({"version": 1, "weights": described}, indent=2) + "\n", encoding="utf-8")


def _end() -> None:
    """MAX's own threads may still run when all is written, and its way to end them aborts the process."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _made(source: Path, function: str, arguments: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    from max import graph

    specification = importlib.util.spec_from_file_location(_NAME, source)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[_NAME] = module
    specification.loader.exec_module(module)
    sys.modules.pop(_NAME)
    make = getattr(module, function, None)
    if not callable(make):
        raise SystemExit(f"{source.name} has no function {function}")
    made = make(**arguments)
    if (
        not isinstance(made, tuple)
        or len(made) != 2
        or not isinstance(made[0], graph.Graph)
        or not all(isinstance(each, graph.Weight) for each in made[1])
    ):
        raise SystemExit(f"{function} of {source.name} returns no graph and weights: write `return graph, [w1, w2]`")
    return made[0], list(made[1])
