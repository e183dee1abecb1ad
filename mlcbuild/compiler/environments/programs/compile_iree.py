"""`model` → `module`: IREE's compiler, for the device that `flags` name. Needs iree-base-compiler and onnx.

IREE writes names of its input file into the module, so that file always has the same one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

_SOURCE, _MODULE = "model.mlir", "model.vmfb"


def run(*, model: Path, module: Path, flags: Sequence[str]) -> None:
    from iree.compiler import tools
    from iree.compiler.tools.import_onnx import __main__ as importer

    taken, made = model.resolve(), module.resolve()
    os.chdir(os.environ["TMPDIR"])
    shutil.copyfile(taken, "model.onnx")
    try:
        importer.main(importer.parse_arguments(["model.onnx", "-o", _SOURCE]))
    except Exception as error:
        raise SystemExit(f"IREE cannot import the model: {error}") from None
    try:
        tools.compile_file(_SOURCE, output_file=_MODULE, extra_args=list(flags))
    except tools.CompilerToolError as error:
        raise SystemExit(_reason(str(error))) from None
    shutil.move(_MODULE, made)


def _reason(told: str) -> str:
    """The first error that iree-compile tells, without what it was called with."""
    lines = told.partition("Diagnostics:")[2].partition("Invoked with:")[0].splitlines()
    errors = [line for line in lines if "error:" in line] or [line for line in lines if line.strip()] or [told]
    return f"IREE cannot compile the model: {errors[0].strip().removeprefix('iree-compile: ')}"
