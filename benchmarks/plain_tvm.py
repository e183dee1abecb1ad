"""One GPU library by plain TVM, in one process: what a cold build is measured against.

    python -m benchmarks.plain_tvm --config CONFIG.json --quantization NAME --arch sm_90 [--compiler nvcc] OUTPUT.so

It exports the model with every layer on its own, applies the passes that mlcbuild applies, schedules every kernel by
TVM's default GPU rules, and has `relax.build` compile the whole to machine code by TVM's own callback, as TVM does
where there is a driver. Without a driver, a library with the nine driver functions that TVM's runtime names takes its
place; none of them is called. TVM's callback takes CUDA's headers from a toolkit (`--toolkit`). Without one it takes
those of mlcbuild's wheels, and NVRTC comes from these wheels in any case (`benchmarks.nvrtc_bindings`); `nvcc` needs a
toolkit. Printed: seconds by step and where the headers come from, as JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import nvrtc_bindings
from mlcbuild.rules.checkpoint_formats import formats


class Clock:
    """Seconds by step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - began, 2)


def build(config: Path, quantization: str, arch: str, output: Path, clock: Clock) -> None:
    with clock.step("import"), tempfile.TemporaryDirectory() as folder:
        _load_runtime(Path(folder))
        import tvm
        from tvm import relax, tirx
        from tvm.s_tir import dlight

        from mlcbuild.compiler import ir
        from mlcbuild.compiler import metadata as metadata_file
        from mlcbuild.compiler import target as targets
        from mlcbuild.compiler.backends.cuda import phase0 as cuda_phase0
        from mlcbuild.compiler.backends.cuda import phase1 as cuda_phase1
        from mlcbuild.compiler.backends.cuda import phase5 as cuda_phase5
        from mlcbuild.compiler.kernels.workspace import lift_global_buffers
        from mlcbuild.compiler.models.compilable import build_model
        from mlcbuild.compiler.models.description import read_model
        from mlcbuild.compiler.passes import phase0, phase1, phase2, phase3, phase5
        from mlcbuild.compiler.passes.add_workspaces import add_workspaces
        from mlcbuild.compiler.passes.inline_private_functions import inline_private_functions
        from mlcbuild.compiler.phases.phase0 import PHASE0
        from mlcbuild.compiler.phases.phase1 import PHASE1
        from mlcbuild.compiler.phases.phase2 import PHASE2
        from mlcbuild.compiler.phases.phase3 import PHASE3
        from mlcbuild.compiler.phases.phase5 import PHASE5
        from mlcbuild.compiler.phases.pipeline import PhaseContext, apply
        from mlcbuild.compiler.stages import export, resolve_model
        from mlcbuild.rules.families import families
        from tests.compiler import schemes
        from tests.compiler.resolving import model_builders
    host = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"}
    limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152, "thread_warp_size": 32}
    target = targets.parse({"kind": "cuda", "arch": arch, **limits, "host": host})
    with tempfile.TemporaryDirectory() as folder:  # for the metadata alone, which do not depend on how layers are shown
        at = Path(folder).joinpath
        resolved = {"model": at("model.json"), "parameters": at("parameters.json")}
        resolve_model.run(config=config, families=families(), formats=formats(), **resolved)
        scheme = schemes.scheme(quantization)
        export.run(
            model=resolved["model"],
            parameters=resolved["parameters"],
            module=at("module.json"),
            metadata=at("metadata.json"),
            models=model_builders(),
            scheme=scheme,
            reader=schemes.reader_class(scheme),
        )
        description, document = read_model(resolved["model"]), metadata_file.read(at("metadata.json"))
    with clock.step("export"):
        model = build_model(description, model_builders(), schemes.reader(scheme))
        module, _ = model.export_tvm(spec=model.specification())
        module = inline_private_functions(ir.without_spans(module))
        module = relax.transform.CanonicalizeBindings()(relax.transform.Normalize()(module))
    context = PhaseContext(
        target=target,
        metadata=document | asdict(description.sizes) | {"active_vocab_size": document["vocab_size"]},
        sizes=description.sizes,
        cuda_graph=True,
    )
    phases = (
        (PHASE0, phase0.PASSES, cuda_phase0.PASSES),
        (PHASE1, phase1.PASSES, cuda_phase1.PASSES),
        (PHASE2, phase2.PASSES, None),
        (PHASE3, phase3.PASSES, None),
    )
    done = ("RepeatLayers", "AddWorkspaces")  # All layers are there, and kernels were scheduled in the module.
    for number, (entries, common, backend) in enumerate(phases):
        with clock.step(f"phase {number}"):
            module = apply(module, entries, context, common=common, backend=backend)
    with clock.step("schedule"), target:
        rules: Any = dlight.gpu
        module = dlight.ApplyDefaultSchedule(
            rules.Matmul(), rules.GEMV(), rules.Reduction(), rules.GeneralReduction(), rules.Fallback()
        )(module)
        lifted = {}
        for variable, function in module.functions_items():
            if isinstance(function, tirx.PrimFunc):
                whole, buffers = lift_global_buffers(function)
                if buffers:
                    lifted[str(variable.name_hint)] = whole
        module = add_workspaces(module, lifted)
    with clock.step("lower"):
        left = tuple(entry for entry in PHASE5 if entry.name not in done)
        common = {name: run for name, run in phase5.PASSES.items() if name not in done}
        module = apply(module, left, context, common=common, backend=cuda_phase5.PASSES)
    with clock.step("code"), target:
        executable = relax.build(module, target, relax_pipeline=tvm.transform.Sequential([]))
    with clock.step("link"):
        executable.export_library(str(output))


def _load_runtime(folder: Path) -> None:
    """Load what TVM's CUDA runtime needs, before tvm is imported: a driver, or what stands in for it, and CUDA's."""
    from mlcbuild.compiler.backends.cuda import wheels
    from tests.compiler.backends.cuda.gpu_runtime import make_driver

    try:
        ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
    except OSError:
        ctypes.CDLL(str(make_driver(folder)), ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(wheels.find("lib/libcudart.so.13")), ctypes.RTLD_GLOBAL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--quantization", default="q4f16_1")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--compiler", choices=("nvcc", "nvrtc"), default="nvrtc")
    parser.add_argument("--toolkit", type=Path, default=Path("/usr/local/cuda"))
    arguments = parser.parse_args()
    os.environ["TVM_CUDA_COMPILE_MODE"] = arguments.compiler
    has_toolkit = (arguments.toolkit / "include").is_dir()
    if arguments.compiler == "nvcc" and not has_toolkit:
        parser.error(f"nvcc needs a toolkit, and {arguments.toolkit} is none")
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUDA_PATH"] = str(arguments.toolkit if has_toolkit else nvrtc_bindings.toolkit(Path(folder)))
        nvrtc_bindings.install()
        began = time.perf_counter()
        build(arguments.config, arguments.quantization, arguments.arch, arguments.output, clock)
        clock.seconds["whole"] = round(time.perf_counter() - began, 2)
    print(json.dumps({**clock.seconds, "headers": "toolkit" if has_toolkit else "wheels"}))


if __name__ == "__main__":
    main()
