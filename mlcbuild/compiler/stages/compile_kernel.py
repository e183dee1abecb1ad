"""CompileKernel: a scheduled kernel → an object file, for targets that are their own host.

The object defines `__tvm_ffi_<name>`, the kernel in TVM's packed calling convention, where `<name>` is the kernel's
content name. A backend whose kernels run on a device has a CompileKernel of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm

from mlcbuild.compiler import ir
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.kernels.bound_bfloat16 import store_before_binding


def run(*, scheduled: Path, object: Path, target: dict[str, Any]) -> None:
    """Compiles the kernel for `target`. Raises StageError for what is no target, and for a file that is no module."""
    parsed = targets.parse(target)
    module = store_before_binding(ir.load_module(scheduled))
    with parsed:
        library = tvm.tirx.build(module, target=parsed)
    library.write_to_file(str(object), "o")
