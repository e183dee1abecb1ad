"""Fat binaries: cubins of several architectures in one piece, of which a driver loads what fits its GPU.

The library is nvFatbin (its interface is in NVIDIA's manual of that name), called directly. It makes what CUDA's
program `fatbinary` makes, byte for byte, and its wheel is a hundredth of the size.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from mlcbuild.compiler.backends.cuda import architectures, wheels
from mlcbuild.errors import LocalEnvironmentError, StageError

_LIBRARY = "lib/libnvfatbin.so.13"
_OPTIONS = (b"-64",)
_SUCCESS = 0
_OF_THE_INPUT = {2: "it is for another architecture", 3: "it is for another word size", 12: "it is empty"}


def combine(cubins: Mapping[str, bytes]) -> bytes:
    """The fat binary of cubins by architecture (`sm_90`), the lowest first.

    Raises StageError for a cubin that is not for its architecture, and LocalEnvironmentError where the library is
    missing or breaks down.
    """
    library = _library()
    handle = ctypes.c_void_p()
    options = (ctypes.c_char_p * len(_OPTIONS))(*_OPTIONS)
    _check(library.nvFatbinCreate(ctypes.byref(handle), options, ctypes.c_size_t(len(_OPTIONS))), library)
    try:
        for name in architectures.in_order(cubins):
            data = cubins[name]
            number = name.removeprefix("sm_").encode()
            code = library.nvFatbinAddCubin(handle, data, ctypes.c_size_t(len(data)), number, None)
            if code in _OF_THE_INPUT:
                raise StageError(f"the cubin for {name} is none: {_OF_THE_INPUT[code]}")
            _check(code, library)
        size = ctypes.c_size_t()
        _check(library.nvFatbinSize(handle, ctypes.byref(size)), library)
        result = ctypes.create_string_buffer(size.value)
        _check(library.nvFatbinGet(handle, result), library)
        return result.raw
    finally:
        library.nvFatbinDestroy(ctypes.byref(handle))


def _library() -> ctypes.CDLL:
    path = wheels.find(_LIBRARY)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise LocalEnvironmentError(
            f"nvFatbin cannot be loaded: {error}",
            advice=('run: python -m pip uninstall nvidia-nvfatbin, then python -m pip install "mlcbuild[cuda]"',),
        ) from error
    library.nvFatbinGetErrorString.restype = ctypes.c_char_p
    return library


def _check(code: int, library: ctypes.CDLL) -> None:
    if code != _SUCCESS:
        reason = library.nvFatbinGetErrorString(code).decode()
        raise LocalEnvironmentError(f"nvFatbin broke down: {reason}", advice=("build again",))
