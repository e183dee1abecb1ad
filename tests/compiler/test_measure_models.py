"""MeasureModels with runtimes of a few lines: what is told of those that work, and of those that do not."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler.environments.programs import measure_model
from mlcbuild.compiler.stages.measure_models import run

ENVIRONMENT = Path(np.__file__).parents[1]
RUNTIMES = {
    "twice": "return lambda given: {'y': given['x'] * 2}",
    "off": "return lambda given: {'y': given['x'] * 2 + 0.5}",
    "options": "return lambda given: {'y': given['x'] * options['factor']}",
    "threads": "return lambda given: {'y': given['x'] * threads}",
    "refuses": "raise ValueError('not this model')",
    "crashes": "import os, signal\n    os.kill(os.getpid(), signal.SIGSEGV)",
    "large": "import numpy\n    held = numpy.ones(200 << 20, dtype='u1')\n"
    "    return lambda given: {'y': given['x'] * (2 * held[0])}",
    "elsewhere": "return lambda given: {'z': given['x'] * 2}",
    "no number": "return lambda given: {'y': given['x'] * 2 + float('nan')}",
    "slow": "import time\n    return lambda given: time.sleep(0.02) or {'y': given['x'] * 2}",
    "small": "return lambda given: {'y': given['x'][:1] * 2}",
}


def runtime(folder: Path, name: str) -> Callable[..., Any]:
    """The function `load` of a module in a file, as a plug-in is."""
    file = folder / f"{name}.py"
    arguments = "artifact, inputs, outputs, threads, **options"
    file.write_text(f"def prepare(threads):\n    pass\n\n\ndef load({arguments}):\n    {RUNTIMES[name]}\n")
    specification = importlib.util.spec_from_file_location(f"runtime_{name}", file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    load: Callable[..., Any] = module.load
    return load


def measured(folder: Path, *names: str, seconds: float = 0.01) -> list[dict[str, Any]]:
    cases = folder / "cases"
    for size in (1, 4):
        (cases / str(size)).mkdir(parents=True)
        x = np.arange(3 * size, dtype="f4").reshape(size, 3)
        np.save(cases / str(size) / "in-0.npy", x)
        np.save(cases / str(size) / "out-0.npy", x.astype("f8") * 2)
    (cases / "cases.json").write_text(json.dumps({"inputs": ["x"], "outputs": ["y"], "sizes": [1, 4]}))
    (folder / "artifact").write_bytes(b"12345")
    arguments: dict[str, Any] = {f"artifact_{number}": folder / "artifact" for number in range(len(names))}
    arguments |= {f"runtime_{number}": runtime(folder, name) for number, name in enumerate(names)}
    run(
        cases=cases,
        measured=folder / "measured.json",
        models=[{"label": name, "environment": 0, "options": {"factor": 2}} for name in names],
        rounds=2,
        seconds=seconds,
        threads=2,
        environment_0=ENVIRONMENT,
        **arguments,
    )
    document = json.loads((folder / "measured.json").read_text())
    assert (document["version"], document["rounds"], document["threads"]) == (1, 2, 2)
    found: list[dict[str, Any]] = document["models"]
    assert [each["label"] for each in found] == list(names)
    return found


def test_models_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    twice, off, options, threads = measured(tmp_path, "twice", "off", "options", "threads")
    for each in (twice, options, threads):
        assert each["bytes"] == 5
        assert [(case["size"], case["error"], case["largest"]) for case in each["cases"]] == [(1, 0, 4), (4, 0, 22)]
        assert all(case["calls"] >= 10 and case["seconds"] > 0 and case["spread"] >= 0 for case in each["cases"])
        assert "options" not in each
    assert [case["error"] for case in off["cases"]] == [0.5, 0.5]


def test_the_memory_is_that_of_the_model_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not that of the process which starts it."""
    monkeypatch.chdir(tmp_path)
    held = np.ones(400 << 20, dtype="u1")
    twice, large = measured(tmp_path, "twice", "large")
    assert held[-1] == 1
    assert 5 << 20 < twice["peak_bytes"] < 300 << 20
    assert large["peak_bytes"] > twice["peak_bytes"] + (150 << 20)


def test_models_that_do_not_cost_the_others_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("refuses", "crashes", "small", "elsewhere", "no number", "twice")
    refuses, crashes, small, elsewhere, no_number, twice = measured(tmp_path, *names)
    assert refuses["failure"] == "measure_model: ValueError: not this model"
    assert crashes["failure"] == "measure_model crashed with SIGSEGV in its Python environment"
    assert small["cases"][0]["error"] == 0, "there is one alone"
    assert small["cases"][1]["failure"] == "ValueError: y has the shape (1, 3), which should be (4, 3)"
    assert elsewhere["cases"][0]["failure"] == "ValueError: the runtime returns z, and not the output y"
    assert no_number["cases"][1]["failure"] == "ValueError: 12 of 12 values of y are no numbers"
    assert [case["error"] for case in twice["cases"]] == [0, 0]


def test_a_slow_model_is_called_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (slow,) = measured(tmp_path, "slow")
    assert all(2 <= case["calls"] <= 4 for case in slow["cases"]), "one or two in each round: it takes the time of two"


def test_without_time_a_model_is_called_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (twice,) = measured(tmp_path, "twice", seconds=0)
    assert [case["calls"] for case in twice["cases"]] == [2, 2], "in each of two rounds"


@pytest.mark.parametrize(
    ("made", "expected", "distance"),
    [
        (np.array([0], "u1"), np.array([1], "u1"), 1),
        (np.array([True, False]), np.array([True, True]), 1),
        (np.array([np.inf, 1]), np.array([np.inf, 3]), 2),
        (np.array([np.nan, 1]), np.array([np.nan, 1]), 0),
        (np.array([]), np.array([]), 0),
        (np.array([16777217], "i8"), np.array([16777216], "i8"), 1),
    ],
    ids=["unsigned", "truth", "infinity", "no number", "nothing", "whole numbers"],
)
def test_distances_are_those_of_float64(made: Any, expected: Any, distance: float) -> None:
    assert measure_model._distance("y", made, expected) == distance


def test_numbers_where_there_ought_to_be_none_are_no_result() -> None:
    with pytest.raises(ValueError, match="y has numbers where float64 has infinity or none"):
        measure_model._distance("y", np.array([1.0]), np.array([np.inf]))


def test_threads_are_those_of_the_process_where_none_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cases = tmp_path / "cases"
    cases.mkdir()
    (cases / "cases.json").write_text(json.dumps({"inputs": [], "outputs": [], "sizes": []}))
    run(cases=cases, measured=tmp_path / "measured.json", models=[], rounds=1, seconds=0.01, threads=0)
    assert json.loads((tmp_path / "measured.json").read_text())["threads"] == len(os.sched_getaffinity(0))


def test_a_module_that_is_no_runtime_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(RUNTIMES, "twice", f"{RUNTIMES['twice']}\n\n\ndel prepare")
    (twice,) = measured(tmp_path, "twice")
    assert twice["failure"] == "the runtime twice.py has no function prepare"


def test_what_a_runtime_imports_is_compiled_once_for_all_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    measured(tmp_path, "twice")
    assert list((tmp_path / ".tmp/bytecode").rglob("numpy/*.pyc"))
