"""Kernels of the host, run on the CPU, where Triton's interpreter runs what they start. For processes that have set
`TRITON_INTERPRET`: whether functions are interpreted is decided as they are imported."""

from __future__ import annotations

import ctypes
import importlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import tvm
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler.backends.cuda import triton_launch
from mlcbuild.compiler.kernel_attributes import DEVICE_KERNELS

Array = np.ndarray[Any, np.dtype[Any]]
_TYPES = {
    "*fp32": torch.float32,
    "*fp16": torch.float16,
    "*bf16": torch.bfloat16,
    "*fp8e4nv": torch.float8_e4m3fn,
    "*fp8e5": torch.float8_e5m2,
    "*i8": torch.int8,
    "*u8": torch.uint8,
    "*i32": torch.int32,
    "*u32": torch.uint32,
}


def run_host(kernel: tirx.PrimFunc, arrays: Sequence[Array]) -> list[Array]:
    """The arrays after a call."""
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    sizes = {_address(tensor): array.nbytes for tensor, array in zip(tensors, arrays, strict=True)}
    described = json.loads(str(kernel.attrs[DEVICE_KERNELS]))
    for each in described:
        tvm_ffi.register_global_func(each["name"], _interpreted(each, sizes), override=True)
    named = tvm.IRModule({tvm.ir.GlobalVar("f"): kernel.with_attr("global_symbol", "f")})
    numbers = {each["name"]: (32 * each["warps"], 0) for each in described}
    tvm.tirx.build(triton_launch.with_numbers(named, numbers), target="llvm")["f"](*tensors)
    return [tensor.numpy() for tensor in tensors]


def _address(tensor: Any) -> int:
    return int(tensor.data_ptr())


def _interpreted(described: Any, sizes: dict[int, int]) -> Any:
    module, _, name = described["function"].partition(":")
    function = getattr(importlib.import_module(module), name)

    def value(kind: str, given: Any) -> Any:
        if not kind.startswith("*"):
            return given
        place = int(given.value or 0) if isinstance(given, ctypes.c_void_p) else int(given)
        begin = max(address for address in sizes if address <= place)
        memory = (ctypes.c_char * (sizes[begin] - (place - begin))).from_address(place)
        return torch.frombuffer(memory, dtype=_TYPES[kind])

    def start(*given: Any) -> None:
        signature = described["signature"]
        *_, across, down, threads, _shared = given
        assert threads == 32 * described["warps"]
        arguments = [value(kind, each) for (_, kind), each in zip(signature, given, strict=False)]
        function[(across, down)](*arguments, **dict(described["constants"]))

    return start
