"""Which device a library runs on, and the runtime that this takes.

A library says so itself: the modules that are packed into it are named by kind, each name behind its length in eight
bytes (TVM's serialization of a module's imports).
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import mmap
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.runtime.recorded_calls import RecordedCalls

CPU = "cpu"
_CUDA_RUNTIME = "libcudart.so.13"
_DRIVER = "libcuda.so.1"
_TVM_RUNTIME = "libtvm_runtime_cuda.so"


def kind_of(library: Path) -> str:
    """The kind, of `DEVICES`, of the first modules for a device in a library; `CPU` where it has none.

    Raises OSError for a file that cannot be read.
    """
    with library.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return next((kind for kind in DEVICES if re.search(_packed_name(kind), content)), CPU)


def device_of(kind: str, tvm: Any) -> Any:
    """The first device of a kind. Raises LocalEnvironmentError where this machine has none that can be used."""
    return DEVICES[kind](tvm) if kind in DEVICES else tvm.cpu()


def _packed_name(kind: str) -> bytes:
    """What matches the name of a module's kind in a library."""
    return re.escape(struct.pack("<Q", len(kind)) + kind.encode())


def _cuda(tvm: Any) -> Any:
    _load_cuda_runtime(Path(tvm.__file__).parent)
    device = tvm.cuda(0)
    if not device.exist:
        raise LocalEnvironmentError("the library is for a CUDA GPU, and the driver finds none on this machine")
    return device


def _load_cuda_runtime(tvm_folder: Path) -> None:
    """Load the part of TVM's runtime that drives GPUs, and before it what it needs, from wherever that is installed."""
    try:
        ctypes.CDLL(_DRIVER, ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise LocalEnvironmentError(
            "the library is for a CUDA GPU, and this machine has no driver for one",
            advice=(f"the loader says: {error}",),
        ) from error
    if not any(_loads(path) for path in _cuda_runtimes()):
        raise LocalEnvironmentError(
            f"{_CUDA_RUNTIME} is not found, which libraries for CUDA GPUs need",
            advice=('install it: python -m pip install "mlcbuild[cuda]"',),
        )
    found = next(
        (path for path in (tvm_folder / _TVM_RUNTIME, tvm_folder / "lib" / _TVM_RUNTIME) if path.exists()), None
    )
    if found is None:
        raise LocalEnvironmentError(f"the installed TVM has no {_TVM_RUNTIME}")
    try:
        ctypes.CDLL(str(found), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise LocalEnvironmentError(f"TVM's CUDA runtime does not load: {error}") from error


def _cuda_runtimes() -> Iterator[str]:
    """CUDA's runtime library as the wheel brings it, then by the loader's own search, then in a toolkit."""
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or ()) if package else ():
        yield f"{folder}/cu13/lib/{_CUDA_RUNTIME}"
    yield _CUDA_RUNTIME
    yield f"/usr/local/cuda/lib64/{_CUDA_RUNTIME}"


def _loads(path: str) -> bool:
    try:
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


# The kind of TVM's modules → its first device, as TVM has it. Raises LocalEnvironmentError where there is none.
DEVICES: Mapping[str, Callable[[Any], Any]] = {"cuda": _cuda}
# The kind → DLPack's type of device of page-locked host memory, which its driver copies to by itself: kDLCUDAHost.
PAGE_LOCKED: Mapping[str, int] = {"cuda": 3}
# The kind → calls that its devices play without the host.
RECORDED: Mapping[str, Callable[[Any, Callable[[], object]], RecordedCalls]] = {"cuda": RecordedCalls}
