"""What TVM's own CUDA callback takes from a CUDA toolkit and from `cuda-bindings`, out of mlcbuild's wheels.

TVM compiles CUDA C++ by NVRTC through the package `cuda-bindings` and with a toolkit's headers. mlcbuild needs neither
(`mlcbuild.compiler.backends.cuda.nvrtc`), so its environment has neither. This module calls the same NVRTC library
through ctypes, under the names of `cuda.bindings.nvrtc`. Its callback, text and options stay TVM's.
"""

from __future__ import annotations

import ctypes
import enum
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlcbuild.compiler.backends.cuda import wheels

_LIBRARIES = ("lib/libnvrtc-builtins.so.13.0", "lib/libnvrtc.so.13")
# TVM's text includes these headers of libcu++, which no wheel of mlcbuild has. What TVM only names is only declared.
_HEADERS = {
    "cuda/std/cstdint": """\
#pragma once
namespace cuda { namespace std {
using int8_t = signed char; using int16_t = short; using int32_t = int; using int64_t = long;
using uint8_t = unsigned char; using uint16_t = unsigned short;
using uint32_t = unsigned; using uint64_t = unsigned long;
} }
""",
    "cuda/std/type_traits": """\
#pragma once
namespace cuda { namespace std {
template <class A, class B> struct is_same { static constexpr bool value = false; };
template <class A> struct is_same<A, A> { static constexpr bool value = true; };
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <class T> struct is_integral;
template <class T> struct is_signed;
template <class T> struct is_unsigned;
template <class T> struct is_floating_point;
template <bool condition, class T = void> struct enable_if;
template <bool condition, class A, class B> struct conditional;
} }
""",
    "cuda/std/limits": """\
#pragma once
namespace cuda { namespace std {
template <class T> struct numeric_limits;
template <> struct numeric_limits<float> {
  static __device__ float infinity() { return __int_as_float(0x7f800000); }
};
} }
""",
}


class Result(enum.IntEnum):
    """Those of NVRTC's codes that TVM names."""

    NVRTC_SUCCESS = 0


def install() -> None:
    """Let `from cuda.bindings import nvrtc` find NVRTC of the wheels. Raises LocalEnvironmentError without them."""
    *_, library = [ctypes.CDLL(str(wheels.find(path))) for path in _LIBRARIES]
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    package, bindings = types.ModuleType("cuda"), types.ModuleType("cuda.bindings")
    package.bindings = bindings  # type: ignore[attr-defined]
    bindings.nvrtc = _Bindings(library)  # type: ignore[attr-defined]
    sys.modules.update({"cuda": package, "cuda.bindings": bindings})


def toolkit(directory: Path) -> Path:
    """A folder, made in `directory`, that TVM takes for a toolkit: the headers of the wheels, and three of libcu++.

    They are shorter than the toolkit's own. TVM compiles a library's kernels as one text, which saves two seconds.
    """
    include = directory / "include"
    include.mkdir(parents=True)
    for header in wheels.find("include").iterdir():
        (include / header.name).symlink_to(header)
    for name, text in _HEADERS.items():
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        (include / name).write_text(text)
    return directory


class _Bindings:
    """The functions that TVM calls. Each answers a tuple that begins with the code."""

    nvrtcResult = Result  # noqa: N815  # NVIDIA's names, here and below

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def nvrtcGetErrorString(self, code: int) -> str:  # noqa: N802
        text: bytes = self._library.nvrtcGetErrorString(code)
        return text.decode()

    def nvrtcCreateProgram(self, text: bytes, name: bytes, *_: Any) -> tuple[int, ctypes.c_void_p]:  # noqa: N802
        program = ctypes.c_void_p()
        return self._library.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None), program

    def nvrtcCompileProgram(  # noqa: N802
        self, program: ctypes.c_void_p, count: int, options: Sequence[bytes]
    ) -> tuple[int]:
        return (self._library.nvrtcCompileProgram(program, count, (ctypes.c_char_p * count)(*options)),)

    def nvrtcDestroyProgram(self, program: ctypes.c_void_p) -> tuple[int]:  # noqa: N802
        return (self._library.nvrtcDestroyProgram(ctypes.byref(program)),)

    def nvrtcGetProgramLogSize(self, program: ctypes.c_void_p) -> tuple[int, int]:  # noqa: N802
        return self._size(self._library.nvrtcGetProgramLogSize, program)

    def nvrtcGetProgramLog(self, program: ctypes.c_void_p, into: bytearray) -> tuple[int]:  # noqa: N802
        return self._read(self._library.nvrtcGetProgramLog, program, into)

    def nvrtcGetCUBINSize(self, program: ctypes.c_void_p) -> tuple[int, int]:  # noqa: N802
        return self._size(self._library.nvrtcGetCUBINSize, program)

    def nvrtcGetCUBIN(self, program: ctypes.c_void_p, into: bytearray) -> tuple[int]:  # noqa: N802
        return self._read(self._library.nvrtcGetCUBIN, program, into)

    def _size(self, function: Any, program: ctypes.c_void_p) -> tuple[int, int]:
        size = ctypes.c_size_t()
        return function(program, ctypes.byref(size)), size.value

    def _read(self, function: Any, program: ctypes.c_void_p, into: bytearray) -> tuple[int]:
        return (function(program, (ctypes.c_char * len(into)).from_buffer(into)),)
