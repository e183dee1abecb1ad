"""The whole compile pipeline in one process, each stage through its own files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from mlcbuild.compiler.stages import (
    compile_kernel,
    export,
    link,
    lower,
    partition,
    phase0,
    phase1,
    phase2,
    phase3,
    schedule_kernel,
)

CPU_TARGET: Mapping[str, object] = {"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": "x86_64-linux-gnu"}


def compile_library(
    config: Mapping[str, object],
    quantization: str,
    target: Mapping[str, object],
    directory: Path,
    *,
    opt: str = "O2",
    overrides: Mapping[str, object] | None = None,
    report: Callable[[str, float], None] | None = None,
) -> Path:
    """Compile a model's `config.json` into `directory`/lib.so, and return its path.

    Every stage's files stay in `directory`; `report` is told the seconds that each stage took.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("kernels", "scheduled", "signatures", "objects"):
        (directory / name).mkdir(exist_ok=True)
    at = directory.joinpath
    at("config.json").write_text(json.dumps(config))
    tool = {"target": dict(target)}
    level = {**tool, "opt": opt}

    def timed(name: str, stage: Callable[..., None], **arguments: object) -> None:
        start = time.perf_counter()
        stage(**arguments)
        if report is not None:
            report(name, time.perf_counter() - start)

    timed(
        "Export",
        export.run,
        config=at("config.json"),
        module=at("export.json"),
        metadata=at("metadata.export.json"),
        quantization=quantization,
    )
    timed(
        "Phase0",
        phase0.run,
        module=at("export.json"),
        metadata=at("metadata.export.json"),
        module_out=at("phase0.json"),
        metadata_out=at("metadata.phase0.json"),
        **level,
    )
    for number, stage in enumerate((phase1.run, phase2.run, phase3.run), start=1):
        timed(
            f"Phase{number}",
            stage,
            module=at(f"phase{number - 1}.json"),
            module_out=at(f"phase{number}.json"),
            **level,
        )
    timed(
        "Partition",
        partition.run,
        module=at("phase3.json"),
        graph=at("graph.json"),
        kernels=at("kernels"),
        manifest=at("manifest.json"),
        **tool,
    )
    names = [kernel["name"] for kernel in json.loads(at("manifest.json").read_text())["kernels"]]
    for name in names:
        scheduled = at("scheduled", f"{name}.json")
        timed(
            f"ScheduleKernel {name}",
            schedule_kernel.run,
            kernel=at("kernels", f"{name}.json"),
            scheduled=scheduled,
            signature=at("signatures", f"{name}.json"),
            **level,
        )
        timed(
            f"CompileKernel {name}",
            compile_kernel.run,
            scheduled=scheduled,
            object=at("objects", f"{name}.o"),
            **tool,
        )
    timed(
        "Lower",
        lower.run,
        graph=at("graph.json"),
        signatures=tuple(at("signatures", f"{name}.json") for name in names),
        metadata=at("metadata.phase0.json"),
        executable=at("executable.bin"),
        shape_functions=at("shape_functions.o"),
        metadata_out=at("metadata.json"),
        overrides=dict(overrides or {}),
        **tool,
    )
    timed(
        "Link",
        link.run,
        executable=at("executable.bin"),
        shape_functions=at("shape_functions.o"),
        objects=tuple(at("objects", f"{name}.o") for name in names),
        library=at("lib.so"),
        **tool,
    )
    return at("lib.so")
