"""The simulated cluster on a small part of its matrix."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import simulated_cluster
from benchmarks.simulated_cluster import RECORD, Matrix, measure, record, simulate, table


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_cluster, "MODELS", {"llama-2-7b": "llama-3-8b"})
    monkeypatch.setattr(simulated_cluster, "QUANTIZATIONS", ("q0f16", "q4f16_1"))
    platforms = {name: simulated_cluster.PLATFORMS[name] for name in ("v3", "sm80-sm90")}
    monkeypatch.setattr(simulated_cluster, "PLATFORMS", platforms)


@pytest.mark.usefixtures("_small")
def test_kernels_are_shared_as_the_recorded_ones_are() -> None:
    matrix = Matrix(json.loads(RECORD.read_text(encoding="utf-8")))
    one = simulate(matrix, 1, matrix.seconds_of)
    assert one.success
    ran = [run.execute.action for run in one.runs]
    for kind, rows in (("v3", "cpu"), ("sm80-sm90", "cuda")):
        recorded = json.loads(RECORD.read_text(encoding="utf-8"))["kernels"]
        keys = {
            row[1] for quantization in ("q0f16", "q4f16_1") for row in recorded[f"llama-3-8b {quantization} {rows}"]
        }
        compiled = [a for a in ran if a.mnemonic == "CompileKernel" and a.owner.endswith(f"-{kind}")]
        assert len(compiled) == len(keys)
    assert one.seconds == pytest.approx(one.work_seconds)


@pytest.mark.usefixtures("_small")
def test_no_row_passes_the_bound() -> None:
    told = measure((4,))
    assert [row["workers"] for row in told["rows"]] == [4]
    for row in told["rows"]:
        assert 0 < row["of the bound"] <= 1
        assert row["speed-up"] <= row["workers"]
    assert len(table(told).splitlines()) == 5


def finished(name: str, mnemonic: str, key: str, *, seconds: float = 0.0) -> str:
    owner = f"//:{name}"
    kernel = f" kernel_{key.replace(chr(32), '')}" if mnemonic == "ScheduleKernel" else ""
    event: dict[str, Any] = {"event": "action_finished", "identifier": f"{owner} {mnemonic}{kernel}", "owner": owner}
    return json.dumps(
        event
        | {
            "mnemonic": mnemonic,
            "key": key,
            "start": 1.0,
            "time": 1.0 + seconds,
            "executor": "local" if seconds else "",
        }
    )


def lines() -> Iterator[str]:
    yield json.dumps({"event": "header"})
    for model in ("tinyllama-1.1b", "llama-3-8b"):
        for quantization in ("q0f16", "q4f16_1"):
            cell = f"{model}-{quantization}-x86-64-v3"
            first = model == "tinyllama-1.1b" and quantization == "q0f16"
            yield finished(cell, "Lower", f"lower {cell}", seconds=2.0 if quantization == "q0f16" else 4.0)
            yield finished(cell, "ScheduleKernel", "aaaaaaaa1", seconds=0.5 if first else 0.0)
            yield finished(cell, "ScheduleKernel", f"of {model}", seconds=0.25 if quantization == "q0f16" else 0.0)
            yield finished(cell, "ScheduleKernel", f"of {cell}", seconds=0.125)


def test_a_record_says_how_widely_kernels_are_shared() -> None:
    told = record(lines())
    assert told["stages"] == {"Lower": {"llama-3-8b": 3.0, "tinyllama-1.1b": 3.0}}
    assert sorted(told["kernels"]["llama-3-8b q4f16_1 cpu"]) == [
        ["everywhere", "aaaaaaaa", 0.5],
        ["library", "of llama", 0.125],
        ["model", "of llama", 0.25],
    ]
