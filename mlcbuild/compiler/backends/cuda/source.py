"""The CUDA C++ text of a kernel, made lean: compiling what stands before a kernel must not cost more than the kernel.

TVM's text begins with headers of CCCL for NVRTC, which has no standard library of its own; `<cuda/std/type_traits>`
alone takes NVRTC 0.7 s, an ordinary kernel 0.1 s. What a kernel uses of them fits into a few lines.
"""

from __future__ import annotations

import re

from mlcbuild.errors import InternalError

_STANDARD_HEADERS = re.compile(r"#ifdef __CUDACC_RTC__\n.*?\n#else\n.*?#include <cuda\.h>\n#endif\n", re.DOTALL)
# The integer types are those of CCCL under NVRTC; nvcc has the host's own.
_LEAN_HEADERS = """\
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef signed short int16_t;
typedef unsigned short uint16_t;
typedef signed int int32_t;
typedef unsigned int uint32_t;
typedef signed long long int64_t;
typedef unsigned long long uint64_t;
namespace std {
template <typename A, typename B> struct is_same { static constexpr bool value = false; };
template <typename A> struct is_same<A, A> { static constexpr bool value = true; };
template <typename A, typename B> inline constexpr bool is_same_v = is_same<A, B>::value;
}
#define __asm__ asm
#define __volatile__ volatile
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#else
#include <cstdint>
#include <type_traits>
#endif
"""


def lean(text: str) -> str:
    """TVM's CUDA text without the headers that cost the most.

    Raises InternalError for a text that does not begin as TVM's do.
    """
    replaced, count = _STANDARD_HEADERS.subn(_LEAN_HEADERS.replace("\\", r"\\"), text, count=1)
    if count == 0:
        raise InternalError("the CUDA text of a kernel does not begin with the headers that TVM writes")
    return replaced.lstrip("\n")
