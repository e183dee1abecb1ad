"""`model` (ONNX, or StableHLO in its portable form) → `module`: IREE's compiler, for the device that `flags` name.
Needs iree-base-compiler, and onnx for ONNX.

IREE writes names of its input file into the module, so that file always has the same one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

_SOURCE, _MODULE = "model.mlir", "model.vmfb"


def run(*, model: Path, module: Path, flags: Sequence[str], is_onnx: bool) -> None:
    from iree.compiler import tools

    taken, made = model.resolve(), module.resolve()
    os.chdir(os.environ["TMPDIR"])
    # IREE starts its linker by a shell, without quotes: no absolute path may get into that line.
    linker = os.path.relpath(Path(tools.__file__).parents[1] / "_mlir_libs" / "iree-lld")
    os.environ["TMPDIR"] = "."
    more: list[str] = []
    if is_onnx:
        _import_onnx(taken)
    else:
        shutil.copyfile(taken, _SOURCE)
        # Without places in the source, which this StableHLO has not, they differ from run to run.
        more.append("--iree-llvmcpu-debug-symbols=false")
    try:
        tools.compile_file(_SOURCE, output_file=_MODULE, extra_args=[*flags, *_linker(flags, linker), *more])
    except tools.CompilerToolError as error:
        raise SystemExit(_reason(str(error))) from None
    shutil.move(_MODULE, made)


def _import_onnx(model: Path) -> None:
    from iree.compiler.tools.import_onnx import __main__ as importer

    shutil.copyfile(model, "model.onnx")
    try:
        importer.main(importer.parse_arguments(["model.onnx", "-o", _SOURCE]))
    except Exception as error:
        raise SystemExit(f"IREE cannot import the model: {error}") from None


def _reason(told: str) -> str:
    """The first error that iree-compile tells, without what it was called with. It may end by an exception."""
    lines = told.partition("Diagnostics:")[2].partition("Invoked with:")[0].splitlines()
    errors = [line for line in lines if "error:" in line]
    errors = errors or [line.partition("what():")[2] for line in lines if line.strip().startswith("what():")]
    errors = errors or [line for line in lines if line.strip()] or [told]
    return f"IREE cannot compile the model: {errors[0].strip().removeprefix('iree-compile: ')}"


def _linker(flags: Sequence[str], path: str) -> list[str]:
    """Only modules for processors are linked."""
    is_linked = any(flag.startswith("--iree-llvmcpu-") for flag in flags)
    return [f"--iree-llvmcpu-embedded-linker-path={path}"] if is_linked else []
