"""The whole compile pipeline in one process, each stage through its own files."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from tvm import relax
from tvm.ir import TupleType

from mlcbuild.compiler import ir
from mlcbuild.compiler.backends.cpu import link as cpu_link
from mlcbuild.compiler.backends.cpu import schedule as cpu_schedule
from mlcbuild.compiler.backends.cuda import link as cuda_link
from mlcbuild.compiler.backends.cuda import schedule as cuda_schedule
from mlcbuild.compiler.backends.cuda.stages import compile_device, fat_binary
from mlcbuild.compiler.backends.cuda.stages import compile_kernel as compile_gpu_kernel
from mlcbuild.compiler.phases.pipeline import Passes
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
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
from mlcbuild.plugins import plugins_in
from tests.compiler import schemes
from tests.compiler.parsed_kernels import parsed_once
from tests.compiler.resolving import assigned, model_builders, write_assigned, write_configured, write_resolved

CPU_TARGET: Mapping[str, object] = {"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": "x86_64-linux-gnu"}
CUDA_TARGET: Mapping[str, object] = {
    "kind": "cuda",
    "arch": "sm_80",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
    "host": CPU_TARGET,
}
Report = Callable[[str, float], None]


def compile_library(
    config: Mapping[str, object],
    quantization: str | Mapping[str, str],
    target: Mapping[str, object],
    directory: Path,
    *,
    opt: str = "O2",
    overrides: Mapping[str, object] | None = None,
    kernel_store: Path | None = None,
    report: Report | None = None,
    architectures: Sequence[str] | None = None,
    attention: Mapping[str, object] | None = None,
    hidden_states: bool = False,
    entry_functions: Collection[str] | None = None,
) -> Path:
    """Compile a model's `config.json` into `directory`/lib.so, and return its path.

    Every stage's files stay in `directory`; `report` is told the seconds that each stage took. A kernel that
    `kernel_store` has, by name and for this target and `opt`, is taken from there, any other is put there: for
    libraries compiled with the same code. `architectures` are a GPU's; left out, the target's own; without any, the
    library has the host's code alone, for device functions that something else runs. `quantization` is a scheme, or a
    table of them by patterns of names. `attention` are values of
    `AttentionConfig`, as JSON, instead of the family's. A `vocabulary.json` in `directory` is the tokenizer's. Of
    several entry functions that take weights only those in `entry_functions` are compiled, if it is given.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    compile_graph(
        quantization,
        target,
        directory,
        overrides=overrides,
        report=report,
        attention=attention,
        hidden_states=hidden_states,
        entry_functions=entry_functions,
    )
    return finish_library(
        target,
        directory,
        opt=opt,
        overrides=overrides,
        kernel_store=kernel_store,
        report=report,
        architectures=architectures,
    )


def compile_graph(
    quantization: str | Mapping[str, str],
    target: Mapping[str, object],
    directory: Path,
    *,
    overrides: Mapping[str, object] | None = None,
    report: Report | None = None,
    attention: Mapping[str, object] | None = None,
    hidden_states: bool = False,
    entry_functions: Collection[str] | None = None,
) -> None:
    """From `config.json` to `phase3.json`, in `directory`."""
    run = _Timer(report)
    at = directory.joinpath
    level = {"target": dict(target)}
    write_resolved(directory, json.loads(at("config.json").read_text()))
    scheme = scheme_in(directory, quantization)
    if attention is not None:
        document = json.loads(at("model.json").read_text())
        document["configuration"]["attention"] |= attention
        at("model.json").write_text(json.dumps(document))
    run(
        "Export",
        export.run,
        model=at("model.json"),
        parameters=at("parameters.json"),
        models=model_builders(),
        module=at("export.json"),
        metadata=at("metadata.export.json"),
        scheme=scheme,
        reader=schemes.reader_class(scheme),
        hidden_states=hidden_states,
    )
    if entry_functions is not None:
        _keep_entry_functions(at("export.json"), entry_functions)
    write_configured(directory, scheme, overrides)
    with parsed_once():
        run(
            "Phase0",
            phase0.run,
            module=at("export.json"),
            metadata=at("metadata.export.json"),
            window=at("window.json"),
            module_out=at("phase0.json"),
            metadata_out=at("metadata.phase0.json"),
            backend=backend_passes(target, 0),
            **level,
        )
    for number, stage in enumerate((phase1.run, phase2.run, phase3.run), start=1):
        before, after = at(f"phase{number - 1}.json"), at(f"phase{number}.json")
        run(
            f"Phase{number}",
            stage,
            module=before,
            module_out=after,
            backend=backend_passes(target, number),
            **level,
        )


def _keep_entry_functions(module: Path, names: Collection[str]) -> None:
    whole = ir.load_module(module)
    for variable, function in whole.functions_items():
        is_entry = isinstance(function, relax.Function) and "global_symbol" in (function.attrs or {})
        takes_weights = is_entry and len(function.params) and isinstance(function.params[-1].ty, TupleType)
        if takes_weights and variable.name_hint not in names:
            del whole[variable]
    ir.save_module(relax.transform.DeadCodeElimination()(whole), module)


def scheme_in(directory: Path, quantization: str | Mapping[str, str]) -> QuantizationScheme:
    """The scheme of a model in `directory`, which several schemes make other kinds of layers."""
    return schemes.scheme(quantization) if isinstance(quantization, str) else write_assigned(directory, quantization)


def backend_passes(target: Mapping[str, object], phase: int) -> Passes | None:
    """The passes that the backend of a target has of its own in a phase."""
    kind = "cpu" if target["kind"] == "llvm" else target["kind"]
    if f"phase{phase}" not in plugins_in(f"compiler/backends/{kind}"):
        return None
    passes: Passes = importlib.import_module(f"mlcbuild.compiler.backends.{kind}.phase{phase}").PASSES
    return passes


def finish_library(
    target: Mapping[str, object],
    directory: Path,
    *,
    opt: str = "O2",
    overrides: Mapping[str, object] | None = None,
    kernel_store: Path | None = None,
    report: Report | None = None,
    architectures: Sequence[str] | None = None,
) -> Path:
    """From `phase3.json`, `metadata.phase0.json`, `model.json` and `parameters.json` to `lib.so`, in `directory`."""
    run = _Timer(report)
    at = directory.joinpath
    quantization = json.loads(at("metadata.phase0.json").read_text())["quantization"]
    write_configured(directory, assigned(directory) or schemes.scheme(quantization), overrides)
    for name in ("kernels", "scheduled", "signatures", "objects", "sources", "launches", "cubins", "device_code"):
        at(name).mkdir(exist_ok=True)
    tool = {"target": dict(target)}
    on_gpu = target["kind"] == "cuda"
    if architectures is None:
        architectures = (str(target["arch"]),) if on_gpu else ()
    has_device_code = len(architectures) > 0
    run(
        "Partition",
        partition.run,
        module=at("phase3.json"),
        metadata=at("metadata.phase0.json"),
        graph=at("graph.json"),
        kernels=at("kernels"),
        manifest=at("manifest.json"),
    )
    names = json.loads(at("manifest.json").read_text())["kernels"]
    if kernel_store is not None:
        settings = json.dumps([target, opt != "O0", architectures], sort_keys=True)
        kernel_store = kernel_store / hashlib.sha256(settings.encode()).hexdigest()[:16]
    for name in names:
        scheduled, signature, object_file = (
            at("scheduled", f"{name}.json"),
            at("signatures", f"{name}.json"),
            at("objects", f"{name}.o"),
        )
        source, launch = at("sources", f"{name}.cu"), at("launches", f"{name}.launch.json")
        device = {"device_source": source, "launch": launch} if on_gpu else {}
        code = [_device_code(at, name, architectures)] if has_device_code else []
        made = (scheduled, signature, object_file, *device.values(), *code)
        if kernel_store is not None and _taken(kernel_store, made):
            continue
        kernel = at("kernels", f"{name}.json")
        run(
            "ScheduleKernel",
            schedule_kernel.run,
            kernel=kernel,
            scheduled=scheduled,
            signature=signature,
            optimized=opt != "O0",
            backend=cuda_schedule.SCHEDULING if on_gpu else cpu_schedule.SCHEDULING,
            **tool,
        )
        compile_stage = compile_gpu_kernel.run if on_gpu else compile_kernel.run
        run("CompileKernel", compile_stage, scheduled=scheduled, object=object_file, **device, **tool)
        cubins = [at("cubins", f"{name}.{arch}.cubin") for arch in architectures]
        for arch, cubin in zip(architectures, cubins, strict=True):
            run("CompileDevice", compile_device.run, source=source, cubin=cubin, arch=arch)
        if len(cubins) > 1:
            run("FatBinary", fat_binary.run, cubins=tuple(cubins), fat_binary=code[0])
        elif has_device_code:
            shutil.copyfile(cubins[0], code[0])
        if kernel_store is not None:
            _put(kernel_store, made)
    run(
        "Lower",
        lower.run,
        graph=at("graph.json"),
        manifest=at("manifest.json"),
        signatures=tuple(at("signatures", f"{name}.json") for name in names),
        metadata=at("metadata.phase0.json"),
        model=at("configured.json"),
        vocabulary=at("vocabulary.json") if at("vocabulary.json").exists() else None,
        executable=at("executable.bin"),
        shape_functions=at("shape_functions.o"),
        metadata_out=at("metadata.json"),
        cuda_graph=on_gpu and opt in ("O2", "O3"),
        backend=backend_passes(target, 5),
        **tool,
    )
    run(
        "Link",
        link.run,
        executable=at("executable.bin"),
        shape_functions=at("shape_functions.o"),
        objects=tuple(at("objects", f"{name}.o") for name in names),
        backend=cuda_link.LINKING if has_device_code else cpu_link.LINKING,
        **(
            {
                "device_code": tuple(_device_code(at, name, architectures) for name in names),
                "launches": tuple(at("launches", f"{name}.launch.json") for name in names),
            }
            if has_device_code
            else {}
        ),
        library=at("lib.so"),
        **tool,
    )
    return at("lib.so")


def _device_code(at: Callable[[str, str], Path], name: str, architectures: Sequence[str]) -> Path:
    return at("device_code", f"{name}.fatbin" if len(architectures) > 1 else f"{name}.cubin")


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
        copy = path.with_name(f"{path.name}.{os.getpid()}")
        shutil.copyfile(file, copy)
        copy.rename(path)  # another process of the session may be reading
