"""`model` → `library`: TVM's ONNX frontend and its own `relax.build`, with the schedules that TVM has by default.

Needs apache-tvm and onnx, and the linker `ld`. `target` is TVM's, with the processor that the library is for, so that
nothing is asked of the one that builds.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def run(*, model: Path, library: Path, target: Mapping[str, Any]) -> None:
    import onnx
    import tvm
    from tvm.relax.frontend.onnx import from_onnx

    try:
        module = from_onnx(onnx.load(model))
    except Exception as error:
        raise SystemExit(f"TVM {tvm.__version__} cannot import the model: {error}") from None
    built = tvm.compile(module, tvm.target.Target(dict(target)))
    built.export_library(str(library), fcompile=_link)


def _link(file: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any) -> None:
    """TVM would call a C++ compiler for this, which adds what is the machine's own."""
    linker = shutil.which("ld")
    if linker is None:
        raise SystemExit("there is no linker: install binutils")
    command = [linker, "-shared", "--build-id=none", "--hash-style=gnu", "-o", file, *objects, *(options or ())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the library cannot be linked: {done.stderr.strip()}")
