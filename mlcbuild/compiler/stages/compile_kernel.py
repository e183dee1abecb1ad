"""CompileKernel: a scheduled kernel → an object file for the host.

The object defines `__tvm_ffi_<name>`, the kernel in TVM's packed calling convention, where `<name>` is the kernel's
content name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm

from mlcbuild.errors import StageError


def run(*, scheduled: Path, object: Path, target: dict[str, Any]) -> None:
    """Compiles the kernel for `target`. Raises StageError for a target of another kind than llvm."""
    tvm_target = tvm.target.Target(target)
    if tvm_target.kind.name != "llvm":
        raise StageError(
            f"no object files for targets of kind {tvm_target.kind.name!r}", advice=("known: llvm",)
        )
    module = tvm.ir.load_json(scheduled.read_text())
    with tvm_target:
        library = tvm.tirx.build(module, target=tvm_target)
    library.write_to_file(str(object), "o")
