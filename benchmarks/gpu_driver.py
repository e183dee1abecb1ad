"""NVIDIA's driver through ctypes, and the command line, of benchmarks that measure kernels on a GPU."""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


class Driver:
    """NVIDIA's driver, of which a few functions are used."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(100)
        self("cuDeviceGetName", name, 100, device)
        self.name = name.value.decode()
        self.stream = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(self.stream), 1)

    def __call__(self, function: str, *arguments: Any) -> None:
        code = getattr(self.library, function)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(code, ctypes.byref(text))
            raise SystemExit(f"{function}: {(text.value or b'?').decode()} ({code})")

    def allocate(self, size: int) -> ctypes.c_uint64:
        pointer = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def upload(self, array: np.ndarray[Any, Any]) -> ctypes.c_uint64:
        pointer = self.allocate(array.nbytes)
        self("cuMemcpyHtoD_v2", pointer, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
        return pointer

    def download(self, pointer: ctypes.c_uint64, array: np.ndarray[Any, Any]) -> None:
        self("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), pointer, ctypes.c_size_t(array.nbytes))

    def free(self, pointer: ctypes.c_uint64) -> None:
        self("cuMemFree_v2", pointer)

    def function(self, cubin: Path, name: str, shared: int) -> ctypes.c_void_p:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self("cuModuleLoadData", ctypes.byref(module), cubin.read_bytes())
        self("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if shared > 48 << 10:
            self("cuFuncSetAttribute", function, 8, shared)
        return function

    def launch(self, function: Any, grid: Any, block: Any, shared: int, arguments: list[Any]) -> None:
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        self("cuLaunchKernel", function, *grid, *block, shared, self.stream, pointers, None)

    def graph(self, record: Any) -> ctypes.c_void_p:
        """What `record` launches, as a graph that can be played."""
        graph, playable = ctypes.c_void_p(), ctypes.c_void_p()
        self("cuStreamBeginCapture_v2", self.stream, 0)
        record()
        self("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        self("cuGraphInstantiateWithFlags", ctypes.byref(playable), graph, ctypes.c_uint64(0))
        return playable

    def seconds(self, playable: Any) -> float:
        """How long the GPU takes for a graph."""
        begin, end, elapsed = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float()
        self("cuEventCreate", ctypes.byref(begin), 0)
        self("cuEventCreate", ctypes.byref(end), 0)
        self("cuEventRecord", begin, self.stream)
        self("cuGraphLaunch", playable, self.stream)
        self("cuEventRecord", end, self.stream)
        self("cuEventSynchronize", end)
        self("cuEventElapsedTime", ctypes.byref(elapsed), begin, end)
        return elapsed.value / 1e3

    def seconds_in_turn(self, graphs: Mapping[str, Any], *, calls: int, rounds: int) -> dict[str, list[float]]:
        """Seconds a call of each graph, which makes `calls`, in every round; a first round of each does not count."""
        times: dict[str, list[float]] = {name: [] for name in graphs}
        for number in range(rounds + 1):
            for name, playable in graphs.items():
                seconds = self.seconds(playable) / calls
                if number:
                    times[name].append(seconds)
        return times


def command_line(
    description: str, build: Callable[[Path, str, str], None], run: Callable[[Path, str, int], None]
) -> None:
    """`build DIRECTORY` or `run DIRECTORY`, with what the user has typed."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("build", "run"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", default="", help="candidates whose name has this in it")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    if given.command == "build":
        build(given.directory, given.only, given.arch)
    else:
        run(given.directory, given.only, given.rounds)
