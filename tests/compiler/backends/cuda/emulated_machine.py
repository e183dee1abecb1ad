"""A library for a GPU in TVM's virtual machine, whose device functions run on the CPU (`cuda_emulation`).

The library is compiled for no architecture (`tests.compiler.pipeline`): its host code launches device functions by
name, and finds here what runs their CUDA text. The GPU's memory is the CPU's. What TVM's CUDA runtime has beside that
are recorded graphs (`_Graphs`).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from mlcbuild.compiler.backends.cuda import device_functions
from mlcbuild.runtime.machine import Machine
from tests.compiler.backends.cuda.cuda_emulation import emulate

_GRAPHS = "vm.builtin.cuda_graph"


class EmulatedMachine(Machine):
    """The library in a `directory` where `compile_library` has put it and its kernels' files."""

    def __init__(self, directory: Path) -> None:
        self._runtime, self._ffi, self.device = tvm.runtime, tvm_ffi, tvm.cuda(0)
        self._machine = tvm.runtime.vm.VirtualMachine(tvm.runtime.load_module(str(directory / "lib.so")), self.device)


@contextlib.contextmanager
def emulated(directory: Path, programs: Path) -> Iterator[EmulatedMachine]:
    """The machine, while TVM finds a GPU. The kernels' texts are compiled in `programs`, each text once."""
    cpu, graphs = tvm_ffi.get_global_func("device_api.cpu"), _Graphs()
    registered = {
        "device_api.cuda": cpu,
        "device_api.cuda_host": cpu,
        f"{_GRAPHS}.get_cached_alloc": graphs.allocated,
        f"{_GRAPHS}.run_or_capture": graphs.run_or_capture,
        **emulate(
            [
                (
                    source.read_text(),
                    device_functions.from_json(
                        (directory / "launches" / f"{source.stem}.launch.json").read_text(), where=source.stem
                    ),
                )
                for source in sorted((directory / "sources").glob("*.cu"))
            ],
            programs,
        ),
    }
    tvm_ffi.register_global_func("__tvm_set_device", lambda *_: None, override=True)
    for name, function in registered.items():
        tvm_ffi.register_global_func(name, function, override=True)
    try:
        yield EmulatedMachine(directory)
    finally:
        for name in registered:
            tvm_ffi.registry.remove_global_func(name)


class _Graphs:
    """What TVM's runtime records and plays back: of each graph and value of its sizes, the arguments that the first
    call had. Another call computes with these, whatever it was given."""

    def __init__(self) -> None:
        self._memory: dict[int, Any] = {}
        self._recorded: dict[tuple[int, tuple[int, ...]], Any] = {}

    def allocated(self, machine: Any, allocate: Any, number: int) -> Any:
        if number not in self._memory:
            self._memory[number] = _invoke(machine, allocate)
        return self._memory[number]

    def run_or_capture(self, machine: Any, function: Any, arguments: Any, number: int, *sizes: Any) -> Any:
        key = int(number), tuple(int(size) for shape in sizes for size in shape)
        recorded = self._recorded.setdefault(key, functools.partial(_invoke, machine, function, *arguments))
        return recorded()


def _invoke(machine: Any, function: Any, *arguments: Any) -> Any:
    return tvm_ffi.get_global_func("vm.builtin.invoke_closure")(machine, function, *arguments)
