"""Run a CUDA kernel's text on the CPU, launched by the kernel's own host code: numbers tell whether a schedule is
right."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler import library_image
from mlcbuild.compiler.backends.cuda import device_functions
from mlcbuild.compiler.weights.tensor import dtype_of

Array = npt.NDArray[Any]

HEADER = Path(__file__).with_name("cuda_emulation.h")
CUDA_TARGET: dict[str, Any] = {
    "kind": "cuda",
    "arch": "sm_90",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
    "host": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"},
}
AVAILABLE = shutil.which("g++") is not None
_CUDA_DEVICE, _BFLOAT = 2, 4  # DLPack's numbers
_DIMENSIONS = {"blockIdx.x": 0, "blockIdx.y": 1, "blockIdx.z": 2, "threadIdx.x": 3, "threadIdx.y": 4, "threadIdx.z": 5}
_DYNAMIC = "tirx.use_dyn_shared_memory"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One start of a device function. Arguments are (argument kind, bits, value); that of a pointer is the place of its
    array among those given; behind these come the ones that the kernel's host code allocates."""

    function: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: tuple[tuple[str, int, float], ...]


def run_cuda(func: tirx.PrimFunc, arrays: Sequence[Array | int], directory: Path, *scalars: float) -> list[Array]:
    """The arrays after a call of a scheduled kernel with copies of them. A number among them is handed over as it is.

    The kernel is compiled when it is first called, and its text by the first call with that `directory`.
    """
    kernel = _built(func)
    device = emulate([(kernel.text, kernel.functions)], directory)
    copies = [array if isinstance(array, int) else np.ascontiguousarray(array).copy() for array in arrays]
    kernel.call(device, copies, scalars)
    return [copy for copy in copies if not isinstance(copy, int)]


def launches(func: tirx.PrimFunc, arrays: Sequence[Array], *scalars: float) -> tuple[str, list[Launch]]:
    """The CUDA text of a scheduled kernel, and what a call with the arrays would start; nothing is computed."""
    kernel = _built(func)
    started: list[Launch] = []
    places = {array.ctypes.data: place for place, array in enumerate(arrays)}

    def recorder(function: device_functions.DeviceFunction) -> Any:
        def record(*given: Any) -> None:
            arguments, sizes, shared = _split(function, given)
            known = [
                (kind, bits, places.setdefault(_address(value), len(places)) if kind == "handle" else value)
                for value, (kind, bits, _) in zip(arguments, function.argument_types, strict=True)
            ]
            started.append(
                Launch(
                    function=function.name,
                    grid=(sizes[0], sizes[1], sizes[2]),
                    block=(sizes[3], sizes[4], sizes[5]),
                    shared=shared,
                    arguments=tuple(known),
                )
            )

        return record

    kernel.call({function.name: recorder(function) for function in kernel.functions}, arrays, scalars)
    return kernel.text, started


@dataclass(frozen=True, kw_only=True)
class _Kernel:
    """A kernel's host code, its CUDA text, and its device functions."""

    library: Any
    text: str
    functions: tuple[device_functions.DeviceFunction, ...]
    device: dict[str, Any] = field(default_factory=dict)

    def call(self, device: Mapping[str, Any], arrays: Sequence[Array | int], scalars: Sequence[float]) -> None:
        """Runs the host code, which starts the functions of `device` by name."""
        tvm_ffi.register_global_func("__tvm_set_device", lambda *_: None, override=True)
        # What a kernel keeps between its launches comes from the pool of the device, which here is that of the CPU.
        tvm_ffi.register_global_func("device_api.cuda", tvm_ffi.get_global_func("device_api.cpu"), override=True)
        # Host code looks for a function once and keeps what it found, so that has to lead to those of every call.
        self.device.update(device)
        for name in device:
            tvm_ffi.register_global_func(name, functools.partial(self._start, name), override=True)
        try:
            self.library["kernel"](
                *(array if isinstance(array, int) else _as_of_a_gpu(array) for array in arrays), *scalars
            )
        finally:
            tvm_ffi.registry.remove_global_func("device_api.cuda")
            for name in device:
                tvm_ffi.registry.remove_global_func(name)

    def _start(self, name: str, *given: Any) -> None:
        self.device[name](*given)


@functools.cache
def _built(func: tirx.PrimFunc) -> _Kernel:
    """Compiled once for each object: a PrimFunc that is equal to another has another hash."""
    target = tvm.target.Target(CUDA_TARGET)
    with target:
        module = tvm.IRModule({"kernel": func.with_attr("global_symbol", "kernel")})
        library = tvm.tirx.build(module, target=target)
    text, functions = device_code(library)
    library.clear_imports()
    return _Kernel(library=library, text=text, functions=functions)


def device_code(library: Any) -> tuple[str, tuple[device_functions.DeviceFunction, ...]]:
    """The CUDA text of a compiled kernel, and its device functions."""
    pack = tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")
    (part,) = [
        part
        for part in library_image.read(pack(library).numpy().tobytes())
        if part.kind == device_functions.MODULE_KIND
    ]
    _, functions, code = device_functions.from_module(part.data)
    return code.decode(), functions


def emulate(
    kernels: Sequence[tuple[str, Sequence[device_functions.DeviceFunction]]], directory: Path
) -> dict[str, Callable[..., None]]:
    """What launches the device functions of kernels, by name, as a kernel's host code does. `kernels` are their CUDA
    texts and functions, which are compiled together, once for a `directory`."""
    source = f'#include "{HEADER}"\n' + "".join(_for_the_cpu(text, functions) for text, functions in kernels)
    name = hashlib.sha256((source + HEADER.read_text()).encode()).hexdigest()[:16]
    library = directory / f"{name}.so"
    if not library.exists():
        path = directory / f"{name}.cpp"
        path.write_text(source)
        command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-mf16c", "-o", str(library), str(path)]
        finished = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
        assert finished.returncode == 0, finished.stderr[:4000]
    emulated = ctypes.CDLL(str(library))
    return {function.name: _launcher(emulated, function) for _, functions in kernels for function in functions}


def _for_the_cpu(text: str, functions: Sequence[device_functions.DeviceFunction]) -> str:
    """C++ of a kernel's CUDA text, and functions that launch its device functions."""
    body = text[text.index('extern "C" __global__') :]
    body = re.sub(r"extern __shared__ (?:__align__\(\d+\)|alignas\(\d+\))? ?(\w+) (\w+)\[\];", _dynamic_buffer, body)
    body = re.sub(r"\balignas\((\d+)\) (\w+) ", r"\2 __attribute__((aligned(\1))) ", body)
    body = _in_step(body, functions)
    starters = []
    for function in functions:
        values = ", ".join(
            f"*({_c_type(kind, bits)}*)arguments[{i}]" for i, (kind, bits, _) in enumerate(function.argument_types)
        )
        starters.append(
            f"static void** arguments_of_{function.name};\n"
            f"static void start_{function.name}() {{ void** arguments = arguments_of_{function.name}; "
            f"{function.name}({_casts(function.name, body, values)}); }}\n"
            f'extern "C" void launch_{function.name}(void** arguments, int* sizes, long shared) {{ '
            f"arguments_of_{function.name} = arguments; "
            f"run_blocks({{sizes[0], sizes[1], sizes[2]}}, {{sizes[3], sizes[4], sizes[5]}}, shared, "
            f"start_{function.name}); }}\n"
        )
    return f"{body}\n" + "".join(starters)


def _in_step(body: str, functions: Sequence[device_functions.DeviceFunction]) -> str:
    """The threads of a warp read in step on a GPU: TVM's kernel that merges attention changes in one thread what the
    next ones read as well. Here they wait for each other before they write to what comes with a call, where all do."""
    names = "|".join(
        re.escape(parameter.split()[-1]) for function in functions for parameter in _parameters(function.name, body)
    )
    return re.sub(rf"^  (?=(?:\*\([^()]+\*\)\()?(?:{names})\b[^;\n]* = )", "  __syncwarp();\n  ", body, flags=re.M)


def _parameters(name: str, body: str) -> list[str]:
    (parameters,) = re.findall(rf"{name}\(([^)]*)\) \{{", body)
    return [part.replace("__restrict__", "").strip() for part in parameters.split(",")]


def _dynamic_buffer(found: re.Match[str]) -> str:
    return f"{found[1]}* {found[2]} = ({found[1]}*)dynamic_shared.data();"


def _casts(name: str, body: str, values: str) -> str:
    """The arguments, each cast to the type of the parameter."""
    types = [re.sub(r"\w+$", "", part).strip() for part in _parameters(name, body)]
    return ", ".join(f"({kind}){value}" for kind, value in zip(types, values.split(", "), strict=True))


def _c_type(kind: str, bits: int) -> str:
    return {"handle": "void*", "float": "float" if bits == 32 else "double"}.get(kind, f"int{bits}_t")


def _launcher(emulated: ctypes.CDLL, function: device_functions.DeviceFunction) -> Callable[..., None]:
    launch = getattr(emulated, f"launch_{function.name}")

    def call(*given: Any) -> None:
        values, sizes, shared = _split(function, given)
        typed = zip(values, function.argument_types, strict=True)
        holders = [_holder(value, kind, bits) for value, (kind, bits, _) in typed]
        arguments = (ctypes.c_void_p * max(len(holders), 1))(*(ctypes.addressof(holder) for holder in holders))
        launch(arguments, (ctypes.c_int * 6)(*sizes), ctypes.c_long(shared))

    return call


def _split(function: device_functions.DeviceFunction, given: Sequence[Any]) -> tuple[Sequence[Any], list[int], int]:
    """The arguments of a launch, the sizes of grid and block, and the bytes of shared memory."""
    count = len(function.argument_types)
    sizes, shared = [1] * 6, 0
    for tag, value in zip(function.launch_parameters, given[count:], strict=True):
        if tag == _DYNAMIC:
            shared = int(value)
        else:
            sizes[_DIMENSIONS[tag]] = int(value)
    return given[:count], sizes, shared


def _address(value: Any) -> int:
    return int(value.value if hasattr(value, "value") else value)


def _holder(value: Any, kind: str, bits: int) -> Any:
    if kind == "handle":
        return ctypes.c_void_p(_address(value))
    if kind == "float":
        return ctypes.c_float(value) if bits == 32 else ctypes.c_double(value)
    return {32: ctypes.c_int32, 64: ctypes.c_int64, 8: ctypes.c_int8}[bits](int(value))


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("dimensions", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
    ]


class _OfAGpu:
    """An array that says of itself that it lies on a GPU."""

    def __init__(self, array: Array) -> None:
        self.is_bfloat16 = array.dtype == dtype_of("bfloat16")
        self.array = array.view(np.uint16) if self.is_bfloat16 else array  # NumPy's DLPack knows no bfloat16

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        tensor = _Tensor.from_address(pointer(capsule, b"dltensor"))
        tensor.device.kind = _CUDA_DEVICE
        if self.is_bfloat16:
            tensor.type_code = _BFLOAT
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CUDA_DEVICE, 0)


def _as_of_a_gpu(array: Array) -> Any:
    return tvm_ffi.from_dlpack(_OfAGpu(array))
