"""CompileKernel for NVIDIA GPUs: a scheduled kernel → an object file for the host, and the text of device functions.

The object defines `__tvm_ffi_<name>`, the kernel in TVM's packed calling convention, where `<name>` is the kernel's
content name. It launches device functions: `device_source` is their CUDA C++ text, for every architecture, and `launch`
(see `backends.cuda.device_functions`) what a launch has to know of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from mlcbuild.compiler import ir, library_image
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.backends.cuda import clusters, dependent_launch, device_functions, source
from mlcbuild.errors import InternalError, StageError

_KEEP_TEXT = "TVM_COMPILE_FORCE_FALLBACK"


def run(*, scheduled: Path, object: Path, device_source: Path, launch: Path, target: dict[str, Any]) -> None:
    """Compiles the kernel for `target`.

    Raises StageError for what is no target, for a file that is no module, and for a kernel that runs nothing on a GPU.
    """
    parsed = targets.parse(target)
    module = ir.load_module(scheduled)
    with parsed, _device_code_as_text():
        library = _build(module, parsed, where=scheduled.name)
    library.write_to_file(str(object), "o")
    functions, text = _device_code(library, where=scheduled.name)
    text = clusters.declared(source.lean(text))
    if dependent_launch.begins_early(str(parsed.attrs["arch"])):
        text, functions = dependent_launch.launched_early(text, functions)
    device_source.write_text(text, encoding="utf-8")
    launch.write_text(device_functions.to_json(functions), encoding="utf-8")


def _build(module: tvm.IRModule, target: tvm.target.Target, *, where: str) -> tvm.runtime.Module:
    try:
        return tvm.tirx.build(module, target=target)
    except RuntimeError as error:
        if "Did you forget to bind" in str(error):
            raise _unbound(where) from error
        raise


def _device_code(library: tvm.runtime.Module, *, where: str) -> tuple[tuple[device_functions.DeviceFunction, ...], str]:
    pack = tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")
    modules = library_image.read(pack(library).numpy().tobytes())
    parts = [part for part in modules if part.kind == device_functions.MODULE_KIND]
    if not parts:
        raise _unbound(where)
    form, functions, code = device_functions.from_module(parts[0].data)
    if len(parts) != 1 or form != device_functions.TEXT:
        raise InternalError(f"TVM made {len(parts)} device modules of one kernel, the first in the form {form!r}")
    return functions, code.decode()


def _unbound(where: str) -> StageError:
    return StageError(
        f"{where} binds no loop to the threads of a GPU, so that it would run on the host",
        advice=("a schedule rule has to apply to every kernel (opt O1 or higher)",),
    )


@contextmanager
def _device_code_as_text() -> Iterator[None]:
    """TVM compiles device code itself where a driver is; here it always leaves the text."""
    before = os.environ.get(_KEEP_TEXT)
    os.environ[_KEEP_TEXT] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_KEEP_TEXT]
        else:
            os.environ[_KEEP_TEXT] = before
