"""TVM's CUDA runtime on a machine without a driver: enough of it to load a library, nothing that computes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mlcbuild.compiler.backends.cuda import wheels

_DRIVER_FUNCTIONS = (
    "cuDeviceGetName",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuLaunchKernelEx",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuTensorMapEncodeTiled",
)
_PRELUDE = """
import ctypes, sys
for library in sys.argv[1:3]:
    ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
import tvm, tvm_ffi
arguments = sys.argv[3:]
"""


def make_driver(directory: Path) -> Path:
    """A library in `directory` with the functions of a driver that TVM's runtime names; each reports an error."""
    source, driver = directory / "driver.c", directory / "libcuda.so.1"
    source.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in _DRIVER_FUNCTIONS))
    subprocess.run(["gcc", "-shared", f"-Wl,-soname,{driver.name}", "-o", str(driver), str(source)], check=True)
    return driver


def run_with_cuda_runtime(directory: Path, script: str, *arguments: str) -> str:
    """What a Python script prints that finds TVM's CUDA runtime loaded, and its `arguments` under that name.

    In `directory` a driver is made (`make_driver`).
    """
    libraries = (str(make_driver(directory)), str(wheels.find("lib/libcudart.so.13")))
    finished = subprocess.run(
        [sys.executable, "-c", _PRELUDE + script, *libraries, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
