"""Instructions of NVIDIA GPUs that TIR has no words for: each a device function of a few lines, which the kernel's
source carries along.

A register of 32 bits holds two halves, the first in its low bits; buffers of registers are of uint32.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812

from mlcbuild.compiler.backends.cuda.dependent_launch import WAIT, WAIT_BODY

Expression = Any
Buffer = Any

SUFFIX = {"float16": "", "bfloat16": "_bfloat16"}  # of functions that there are for both
_MULTIPLY = 'mul.f16x2 %0, %0, %1;" : "+r"(x[{}]) : "r"(factor)'
_HEAD = "__device__ __forceinline__ void"


@contextlib.contextmanager
def when(condition: Expression) -> Iterator[None]:
    """The statements of the block are carried out where the condition holds."""
    with T.If(condition), T.Then():
        yield


@contextlib.contextmanager
def unrolled(count: int) -> Iterator[Expression]:
    """A loop over 0 … count - 1 that CUDA's compiler unrolls: TVM passes over a body once instead of `count` times."""
    if count == 1:
        yield 0
        return
    with T.unroll(0, count, annotations={"pragma_unroll_explicit": False}) as variable:
        yield variable


def fill(buffer: Buffer, value: Expression, count: int, *, first: Expression = 0) -> None:
    """Sets `count` elements of a buffer, from `first` on."""
    with unrolled(count) as place:
        T.buffer_store(buffer, value, [first + place])


def total(count: int, element: Callable[[Expression], Expression]) -> Expression:
    """element(0) + … + element(count - 1), of float32."""
    sums = T.alloc_buffer((1,), "float32", scope="local")
    T.buffer_store(sums, T.float32(0), [0])
    with unrolled(count) as number:
        T.buffer_store(sums, sums[0] + element(number), [0])
    return sums[0]


def at(buffer: Buffer, *indices: Expression) -> Expression:
    """The address of a buffer's element."""
    return T.address_of(buffer[indices if len(indices) > 1 else indices[0]])


def load_once(to: Expression, source: Expression) -> None:
    """Copies 16 bytes of global memory that nobody reads again into four registers, past the first cache."""
    _call(
        "mlcbuild_load_once",
        "(void* to, const void* source)",
        "unsigned* out = (unsigned*)to; "
        'asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];" '
        ': "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "l"(source));',
        to,
        source,
    )


def prefetch_bulk(source: Expression, size: Expression) -> None:
    """Asks for `size` bytes, a multiple of 16, to be brought into the second cache: from sm_90 on."""
    body = 'asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" : : "l"(source), "r"(size));'
    _call("mlcbuild_prefetch_bulk", "(const void* source, int size)", body, source, size)


def load16(to: Expression, source: Expression) -> None:
    """Copies 16 bytes of global memory into four registers."""
    _call(
        "mlcbuild_load16",
        "(void* to, const void* source)",
        "*(uint4*)to = *(const uint4*)source;",
        to,
        source,
    )


def load4(to: Expression, source: Expression) -> None:
    """Copies four bytes of global memory into a register."""
    _call("mlcbuild_load4", "(void* to, const void* source)", "*(unsigned*)to = *(const unsigned*)source;", to, source)


def load8(to: Expression, source: Expression) -> None:
    """Copies eight bytes of global memory into two registers."""
    _call("mlcbuild_load8", "(void* to, const void* source)", "*(uint2*)to = *(const uint2*)source;", to, source)


def load(to: Expression, source: Expression, size: int) -> None:
    """Copies `size` bytes of global memory, 2, 4, 8 or 16, which no kernel writes."""
    kind = {2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}[size]
    body = f"*({kind}*)to = __ldg((const {kind}*)source);"
    _call(f"mlcbuild_load_constant_{size}_bytes", "(void* to, const void* source)", body, to, source)


def load_constant4(to: Expression, source: Expression) -> None:
    """`load4` of what no kernel writes, so that the compiler may place it freely."""
    _call(
        "mlcbuild_load_constant4",
        "(void* to, const void* source)",
        "*(unsigned*)to = __ldg((const unsigned*)source);",
        to,
        source,
    )


def load_twice(to: Expression, source: Expression) -> None:
    """Copies a half of global memory, which no kernel writes, into both halves of a register."""
    _call(
        "mlcbuild_load_twice",
        "(void* to, const void* source)",
        "unsigned value = __ldg((const unsigned short*)source); *(unsigned*)to = value << 16 | value;",
        to,
        source,
    )


def load_shared16(to: Expression, source: Expression) -> None:
    """Copies 16 bytes of shared memory into four registers.

    As four words, which NVRTC makes one read of. It splits a `uint4` into halves, and whether it then makes one read
    of them differed in one compilation of thirty, with the addresses of its own objects.
    """
    words = " ".join(f"out[{place}] = words[{place}];" for place in range(4))
    body = f"unsigned* out = (unsigned*)to; const unsigned* words = (const unsigned*)source; {words}"
    _call("mlcbuild_load_shared16", "(void* to, const void* source)", body, to, source)


def store_shared16(to: Expression, source: Expression) -> None:
    """Copies four registers into 16 bytes of shared memory."""
    load16(to, source)


def scale(registers: Expression, factor: Expression, dtype: str = "float16") -> None:
    """Multiplies the eight numbers of four registers, of `dtype`, by those of `factor`."""
    narrow = dtype == "bfloat16"
    # sm_80 multiplies bfloat16 only as it adds: adding -0 changes nothing.
    multiply = 'fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(x[{}]) : "r"(factor), "r"(0x80008000u)' if narrow else _MULTIPLY
    steps = " ".join(f'asm("{multiply.format(place)});' for place in range(4))
    body = f"unsigned* x = (unsigned*)registers; {steps}"
    _call(f"mlcbuild_scale{SUFFIX[dtype]}", "(void* registers, unsigned factor)", body, registers, factor)


def pack(to: Expression, low: Expression, high: Expression, dtype: str) -> None:
    """Two numbers in float32 become two of `dtype`, float16 or bfloat16, in a register."""
    kind = {"float16": "f16x2", "bfloat16": "bf16x2"}[dtype]
    body = f'asm("cvt.rn.{kind}.f32 %0, %1, %2;" : "=r"(*(unsigned*)to) : "f"(high), "f"(low));'
    _call(f"mlcbuild_pack{SUFFIX[dtype]}", "(void* to, float low, float high)", body, to, low, high)


def pair_with_fourth(registers: Expression) -> None:
    """Eight halves 0 … 7 in four registers become the pairs (0, 4), (1, 5), (2, 6), (3, 7)."""
    _call(
        "mlcbuild_pair_with_fourth",
        "(void* registers)",
        "unsigned* x = (unsigned*)registers; unsigned a = x[0], b = x[1], c = x[2], d = x[3]; "
        "x[0] = __byte_perm(a, c, 0x5410); x[1] = __byte_perm(a, c, 0x7632); "
        "x[2] = __byte_perm(b, d, 0x5410); x[3] = __byte_perm(b, d, 0x7632);",
        registers,
    )


def join(to: Expression, low: Expression, high: Expression) -> None:
    """Two halves in a register."""
    body = "*(unsigned*)to = (unsigned)high << 16 | low;"
    bits = (T.reinterpret("uint16", half) for half in (low, high))
    _call("mlcbuild_join", "(void* to, unsigned short low, unsigned short high)", body, to, *bits)


def unpack_int4(to: Expression, word: Expression, offset: int) -> None:
    """Eight integers of four bits, less `offset`, as halves in four registers: the pairs (0, 4), (1, 5), (2, 6), (3,
    7).

    A half of 1024 + i has i in its low bits, so that an integer becomes a half by one bitwise operation; one that lies
    four bits higher counts 16 times, and is divided by 16 as it loses the 1024. All of it is exact.
    """
    whole = f'asm("sub.f16x2 %0, %0, %1;" : "+r"(x[{{place}}]) : "r"({_half2(1024 + offset)}));'
    shifted = (
        'asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(x[{place}]) '
        f': "r"({_half2(1 / 16)}), "r"({_half2(-(64 + offset))}));'
    )
    extracted = 'asm("lop3.b32 %0, %1, {mask}, 0x64006400, 0xea;" : "=r"(x[{place}]) : "r"({word})); '
    steps = [
        (extracted + (shifted if place % 2 else whole)).format(
            place=place, word="upper" if place > 1 else "word", mask="0x00f000f0" if place % 2 else "0x000f000f"
        )
        for place in range(4)
    ]
    body = "unsigned* x = (unsigned*)to; unsigned upper = word >> 8; " + " ".join(steps)
    _call(f"mlcbuild_unpack_int4_less_{offset}", "(void* to, unsigned word)", body, to, word)


def unpack_int4_bfloat16(to: Expression, word: Expression, offset: int) -> None:
    """`unpack_int4` in bfloat16, of which one of 128 + i has i, below 16, in its low bits."""
    steps = []
    for place in range(4):
        shifted = f"word >> {4 * place}" if place else "word"
        steps.append(
            f'asm("lop3.b32 %0, %1, 0x000f000f, 0x43004300, 0xea;" : "=r"(x[{place}]) : "r"({shifted})); '
            f'asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(x[{place}]) '
            f': "r"({_bfloat2(1)}), "r"({_bfloat2(-(128 + offset))}));'
        )
    body = "unsigned* x = (unsigned*)to; " + " ".join(steps)
    _call(f"mlcbuild_unpack_int4_bfloat16_less_{offset}", "(void* to, unsigned word)", body, to, word)


def multiply_accumulate(
    sums: Expression, a: tuple[Expression, ...], b: tuple[Expression, ...], dtype: str = "float16"
) -> None:
    """sums (16 × 8, float32) += a (16 × 16) b (16 × 8), both of `dtype`, by a warp's tensor core (mma.m16n8k16).

    Thread 4 g + t has of `a` the pairs of halves (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8) in four registers,
    of `b` the pairs (2t, g), (2t + 8, g) in two, and of the sums (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
    """
    kind = {"float16": "f16", "bfloat16": "bf16"}[dtype]
    _call(
        f"mlcbuild_multiply_accumulate{SUFFIX[dtype]}",
        "(void* sums, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1)",
        "float* d = (float*)sums; "
        f'asm("mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 '
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        '{%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) '
        ': "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));',
        sums,
        *a,
        *b,
    )


def low_half(register: Expression, dtype: str = "float16") -> Expression:
    """The first number of a register, of `dtype`, in float32."""
    if dtype == "bfloat16":
        return T.reinterpret("float32", register << T.uint32(16))
    return T.Cast("float32", T.reinterpret("float16", T.Cast("uint16", register & T.uint32(0xFFFF))))


def high_half(register: Expression, dtype: str = "float16") -> Expression:
    """The second number of a register, of `dtype`, in float32."""
    if dtype == "bfloat16":
        return T.reinterpret("float32", register & T.uint32(0xFFFF0000))
    return T.Cast("float32", T.reinterpret("float16", T.Cast("uint16", register >> T.uint32(16))))


def from_lane_xor(value: Expression, mask: int) -> Expression:
    """The value of the thread of the warp whose number differs in the bits of `mask`."""
    return T.tvm_warp_shuffle_xor(T.uint32(0xFFFFFFFF), value, mask, 32, 32)


def wait_for_inputs() -> None:
    """Waits for the kernels before this one: `backends.cuda.dependent_launch`."""
    _call(WAIT, "()", WAIT_BODY)


def let_next_begin() -> None:
    """Lets the next kernel be launched as soon as all blocks of this one have come here: `dependent_launch`. Nothing on
    architectures that cannot."""
    body = '\n#if __CUDA_ARCH__ >= 900\n  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");\n#endif\n'
    _call("mlcbuild_let_next_begin", "()", body)


def synchronize() -> None:
    """Waits for all threads of the block."""
    T.evaluate(T.tvm_storage_sync("shared"))


def _call(name: str, parameters: str, body: str, *arguments: Expression) -> None:
    source = f"{_HEAD} {name}{parameters} {{ {body} }}\n"
    T.evaluate(T.cuda.func_call(name, *arguments, source_code=source))


def _bfloat2(value: float) -> str:
    """As `_half2`, of a value that bfloat16 has."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0] >> 16
    return f"0x{bits << 16 | bits:08x}u"


def _half2(value: float) -> str:
    """The value twice, as the immediate of a register."""
    (bits,) = struct.unpack("<H", struct.pack("<e", value))
    return f"0x{bits << 16 | bits:08x}u"
