"""NVRTC gives a kernel the same PTX each time it compiles its text, wherever its own objects lie in memory.

Its optimizer can depend on addresses, rarely enough to hide from two compilations. PTX tells more than a cubin, which
is mostly the same for both.
"""

from __future__ import annotations

import ctypes

import tvm

from mlcbuild.compiler.backends.cuda import nvrtc, source, wheels
from mlcbuild.compiler.backends.cuda.kernels.matmul import schedule_matmul
from mlcbuild.compiler.backends.cuda.stages.compile_device import OPTIONS
from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET, device_code
from tests.compiler.kernel_running import packed_product

TARGET = tvm.target.Target(CUDA_TARGET)
TIMES = 30  # of 30 compilations of the product whose reads differed, one to four did so


def test_tiles_of_a_product_are_compiled_alike_each_time() -> None:
    scheduled = schedule_matmul(packed_product(192, 64, None, dtype="float16"), TARGET)
    assert scheduled is not None
    with TARGET:
        module = tvm.IRModule({"kernel": scheduled.with_attr("global_symbol", "kernel")})
        text, _ = device_code(tvm.tirx.build(module, target=TARGET))
    assert len({_ptx(source.lean(text), "sm_90") for _ in range(TIMES)}) == 1


def _ptx(text: str, architecture: str) -> bytes:
    library = nvrtc._library()
    program = ctypes.c_void_p()
    nvrtc._check(library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None))
    given = [f"--gpu-architecture={architecture}", f"--include-path={wheels.counted_headers()}", *OPTIONS]
    options = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
    nvrtc._check(library.nvrtcCompileProgram(program, len(given), options))
    text_of_it = nvrtc._buffer(library.nvrtcGetPTXSize, library.nvrtcGetPTX, program)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return text_of_it
