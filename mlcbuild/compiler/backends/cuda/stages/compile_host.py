"""CompileKernel for a kernel that only starts others, which have another source: an object file for the host.

The object defines `__tvm_ffi_<name>`, the kernel in TVM's packed calling convention, where `<name>` is the kernel's
content name. `launches` (of CompileTriton) say what the calls of the others end with.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm

from mlcbuild.compiler import ir
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.backends.cuda import device_functions, triton_launch


def run(*, scheduled: Path, launches: Sequence[Path], object: Path, target: dict[str, Any]) -> None:
    """Raises StageError for what is no target, for a file that is no module, and for launches without numbers."""
    parsed = targets.parse(target)
    numbers: dict[str, tuple[int, ...]] = {}
    for path in launches:
        numbers |= device_functions.numbers_from_json(path.read_text(encoding="utf-8"), where=path.name)
    module = triton_launch.with_numbers(ir.load_module(scheduled), numbers)
    with parsed:
        tvm.tirx.build(module, target=parsed).write_to_file(str(object), "o")
