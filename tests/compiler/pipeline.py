"""The whole compile pipeline in one process, each stage through its own files."""

from __future__ import annotations

import json
import shutil
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
Report = Callable[[str, float], None]


def compile_library(
    config: Mapping[str, object],
    quantization: str,
    target: Mapping[str, object],
    directory: Path,
    *,
    opt: str = "O2",
    overrides: Mapping[str, object] | None = None,
    kernel_store: Path | None = None,
    report: Report | None = None,
) -> Path:
    """Compile a model's `config.json` into `directory`/lib.so, and return its path.

    Every stage's files stay in `directory`; `report` is told the seconds that each stage took. A kernel that
    `kernel_store` has, by name, is taken from there, any other is put there: for several libraries of one target and
    `opt`, compiled with the same code.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    compile_graph(quantization, target, directory, opt=opt, report=report)
    return finish_library(target, directory, opt=opt, overrides=overrides, kernel_store=kernel_store, report=report)


def compile_graph(
    quantization: str, target: Mapping[str, object], directory: Path, *, opt: str = "O2", report: Report | None = None
) -> None:
    """From `config.json` to `phase3.json`, in `directory`."""
    run = _Timer(report)
    at = directory.joinpath
    level = {"target": dict(target), "opt": opt}
    run(
        "Export",
        export.run,
        config=at("config.json"),
        module=at("export.json"),
        metadata=at("metadata.export.json"),
        quantization=quantization,
    )
    run(
        "Phase0",
        phase0.run,
        module=at("export.json"),
        metadata=at("metadata.export.json"),
        module_out=at("phase0.json"),
        metadata_out=at("metadata.phase0.json"),
        **level,
    )
    for number, stage in enumerate((phase1.run, phase2.run, phase3.run), start=1):
        before, after = at(f"phase{number - 1}.json"), at(f"phase{number}.json")
        run(f"Phase{number}", stage, module=before, module_out=after, **level)


def finish_library(
    target: Mapping[str, object],
    directory: Path,
    *,
    opt: str = "O2",
    overrides: Mapping[str, object] | None = None,
    kernel_store: Path | None = None,
    report: Report | None = None,
) -> Path:
    """From `phase3.json`, `metadata.phase0.json` and `config.json` to `lib.so`, in `directory`."""
    run = _Timer(report)
    at = directory.joinpath
    for name in ("kernels", "scheduled", "signatures", "objects"):
        at(name).mkdir(exist_ok=True)
    tool = {"target": dict(target)}
    run(
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
        made = (at("scheduled", f"{name}.json"), at("signatures", f"{name}.json"), at("objects", f"{name}.o"))
        if kernel_store is not None and _taken(kernel_store, made):
            continue
        scheduled, signature, object_file = made
        kernel = at("kernels", f"{name}.json")
        run(
            "ScheduleKernel",
            schedule_kernel.run,
            kernel=kernel,
            scheduled=scheduled,
            signature=signature,
            opt=opt,
            **tool,
        )
        run("CompileKernel", compile_kernel.run, scheduled=scheduled, object=object_file, **tool)
        if kernel_store is not None:
            _put(kernel_store, made)
    run(
        "Lower",
        lower.run,
        graph=at("graph.json"),
        signatures=tuple(at("signatures", f"{name}.json") for name in names),
        metadata=at("metadata.phase0.json"),
        config=at("config.json"),
        executable=at("executable.bin"),
        shape_functions=at("shape_functions.o"),
        metadata_out=at("metadata.json"),
        overrides=dict(overrides or {}),
        **tool,
    )
    run(
        "Link",
        link.run,
        executable=at("executable.bin"),
        shape_functions=at("shape_functions.o"),
        objects=tuple(at("objects", f"{name}.o") for name in names),
        library=at("lib.so"),
        **tool,
    )
    return at("lib.so")


class _Timer:
    """Calls stages and tells how long each took."""

    def __init__(self, report: Report | None) -> None:
        self.report = report

    def __call__(self, name: str, stage: Callable[..., None], **arguments: object) -> None:
        start = time.perf_counter()
        stage(**arguments)
        if self.report is not None:
            self.report(name, time.perf_counter() - start)


def _taken(store: Path, files: tuple[Path, ...]) -> bool:
    kept = [store / file.parent.name / file.name for file in files]
    if not all(path.exists() for path in kept):
        return False
    for path, file in zip(kept, files, strict=True):
        shutil.copyfile(path, file)
    return True


def _put(store: Path, files: tuple[Path, ...]) -> None:
    for file in files:
        path = store / file.parent.name / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, path)
