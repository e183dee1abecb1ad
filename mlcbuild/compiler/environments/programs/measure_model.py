"""One round of one compiled model: loads `artifact` with its `runtime`, and calls it for each case. Needs numpy.

`report` says how long loading, the first call and later calls took, how much memory the process had at most, and how
far the outputs are from float64. A case that the model does not take is told there, and costs the others nothing.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_LEAST_CALLS = 5
_WARM_UP_CALLS = 2
_PATIENCE = 3


def run(
    *,
    artifact: Path,
    runtime: Path,
    cases: Path,
    report: Path,
    threads: int,
    seconds: float,
    options: Mapping[str, Any],
) -> None:
    """`seconds` are those of one case. Raises what importing the runtime and loading raise, and SystemExit for a module
    that is no runtime."""
    _keep_bytecode(report.resolve().parent / "bytecode")
    import numpy as np

    module = _module(runtime)
    if lacking := [name for name in ("prepare", "load") if not hasattr(module, name)]:
        raise SystemExit(f"the runtime {runtime.name} has no function {' and no '.join(lacking)}")
    module.prepare(threads)
    names = json.loads((cases / "cases.json").read_text(encoding="utf-8"))
    began = time.perf_counter()
    call = module.load(artifact, names["inputs"], names["outputs"], threads, **options)
    told: dict[str, Any] = {"load_seconds": time.perf_counter() - began, "cases": []}
    for size in names["sizes"]:
        folder = cases / str(size)
        arrays = {name: np.load(folder / f"in-{index}.npy") for index, name in enumerate(names["inputs"])}
        expected = {name: np.load(folder / f"out-{index}.npy") for index, name in enumerate(names["outputs"])}
        try:
            told["cases"].append({"size": size, **_timed(call, arrays, expected, seconds)})
        except Exception as error:
            told["cases"].append({"size": size, "failure": f"{type(error).__name__}: {error}"[:500]})
    told["peak_bytes"] = _peak_bytes()
    report.write_text(json.dumps(told), encoding="utf-8")


def _keep_bytecode(folder: Path) -> None:
    """For the rounds that follow. An environment has sources alone, and compiling those of a runtime takes seconds."""
    sys.pycache_prefix = str(folder)
    sys.dont_write_bytecode = False


def _timed(
    call: Callable[[dict[str, Any]], dict[str, Any]],
    arrays: dict[str, Any],
    expected: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    import numpy as np

    began = time.perf_counter()
    made = call(arrays)
    first = time.perf_counter() - began
    for name, value in expected.items():
        if name not in made:
            raise ValueError(f"the runtime returns {', '.join(made) or 'nothing'}, and not the output {name}")
        if np.shape(made[name]) != value.shape:
            raise ValueError(f"{name} has the shape {np.shape(made[name])}, which should be {value.shape}")
    error = max((_distance(name, made[name], value) for name, value in expected.items()), default=0.0)
    if first < seconds:
        for _ in range(_WARM_UP_CALLS):
            call(arrays)
    taken: list[float] = []
    began_all = time.perf_counter()
    # A slow model is called less often, once at least.
    while (
        not taken
        or (elapsed := time.perf_counter() - began_all) < seconds
        or (len(taken) < _LEAST_CALLS and elapsed < _PATIENCE * seconds)
    ):
        began = time.perf_counter()
        call(arrays)
        taken.append(time.perf_counter() - began)
    return {
        "first_seconds": first,
        "seconds": statistics.median(taken),
        "calls": len(taken),
        "error": error,
        "largest": max((_largest(value) for value in expected.values()), default=0.0),
    }


def _largest(values: Any) -> float:
    import numpy as np

    wide = np.abs(np.asarray(values).astype("f8"))
    return float(wide[np.isfinite(wide)].max(initial=0.0))


def _distance(name: str, made: Any, expected: Any) -> float:
    """The largest difference, in float64. Raises ValueError where a value is no number, and ought to be one."""
    import numpy as np

    if not expected.size:
        return 0.0
    got, wanted = np.asarray(made).astype("f8"), np.asarray(expected).astype("f8")
    numbers = np.isfinite(wanted)
    if wrong := int((~np.isfinite(got) & numbers).sum()):
        raise ValueError(f"{wrong} of {got.size} values of {name} are no numbers")
    if not np.array_equal(got[~numbers], wanted[~numbers], equal_nan=True):
        raise ValueError(f"{name} has numbers where float64 has infinity or none")
    return float(np.abs(got[numbers] - wanted[numbers]).max(initial=0.0))


def _peak_bytes() -> int:
    """The most memory that this program had at once. What getrusage tells begins with that of the process which
    started it."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _module(file: Path) -> Any:
    specification = importlib.util.spec_from_file_location("model_runtime", file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
