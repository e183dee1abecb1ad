"""NVRTC, CUDA's compiler as a library: CUDA C++ text → a cubin for one architecture.

The library is called directly (its interface is in NVIDIA's «NVRTC» manual): loading it takes 11 ms, `cuda.bindings`
0.2 s, and which file is loaded is settled here, not by a search through the system.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

from mlcbuild.compiler.backends.cuda import wheels
from mlcbuild.errors import LocalEnvironmentError, StageError

_BUILTINS = "lib/libnvrtc-builtins.so.13.0"
_LIBRARY = "lib/libnvrtc.so.13"
_SHOWN_NAME = b"kernel.cu"
_SUCCESS = 0
# Not an error of the text: out of memory, a builtins library that does not fit, an internal error.
_COMPILATION_FAILED = 6
_INVALID_OPTION = 5
_LOG_CHARACTERS = 3000


def compile_text(text: str, architecture: str, options: Sequence[str] = ()) -> bytes:
    """The cubin of `text`, an ELF file for `architecture` (`sm_90`).

    Raises StageError for a text that does not compile, with the first error and NVRTC's log, and LocalEnvironmentError
    where NVRTC is not installed or breaks down.
    """
    library = _library()
    program = ctypes.c_void_p()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), _SHOWN_NAME, 0, None, None))
    try:
        given = [f"--gpu-architecture={architecture}", f"--include-path={wheels.counted_headers()}", *options]
        encoded = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
        code = library.nvrtcCompileProgram(program, len(given), encoded)
        if code in (_COMPILATION_FAILED, _INVALID_OPTION):
            raise _failure(_buffer(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program), architecture)
        _check(code)
        return _buffer(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        # NVRTC opens its builtins by name alone; one that is loaded already is found without a search.
        ctypes.CDLL(str(wheels.find(_BUILTINS)))
        library = ctypes.CDLL(str(wheels.find(_LIBRARY)))
    except OSError as error:
        raise LocalEnvironmentError(
            f"the CUDA compiler cannot be loaded: {error}",
            advice=('run: python -m pip uninstall nvidia-cuda-nvrtc, then python -m pip install "mlcbuild[cuda]"',),
        ) from error
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def _buffer(size_of: ctypes._FuncPointer, read: ctypes._FuncPointer, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(size_of(program, ctypes.byref(size)))
    data = ctypes.create_string_buffer(size.value)
    _check(read(program, data))
    return data.raw


def _check(code: int) -> None:
    if code != _SUCCESS:
        reason = _library().nvrtcGetErrorString(code).decode()
        raise LocalEnvironmentError(f"the CUDA compiler broke down: {reason}", advice=("build again",))


def _failure(log: bytes, architecture: str) -> StageError:
    text = log.rstrip(b"\0").decode(errors="replace").strip()
    lines = text.splitlines()
    first = next((line for line in lines if "error" in line), lines[0] if lines else "no reason given")
    return StageError(
        f"the kernel's CUDA text does not compile for {architecture}: {first.strip()}", advice=(text[:_LOG_CHARACTERS],)
    )
