"""Packed integers of four bits times one vector, as bytes: each number of the vector is three digits of eight bits.

The eight numbers that a word is multiplied with share an exponent, so that each is an integer of 24 bits: what is
rounded away of one is below 2**-23 of the largest of the eight, as in float32. A mask has every second integer of a
word as bytes; these are multiplied with digits and summed without rounding, four to a sum, by one instruction with
VNNI, else by two. A word's sum of integers is exact, and becomes a float32 once. So the 128 weights of a register with
AVX-512 cost 23 instructions, or 16 with VNNI, where to convert each alone takes 24, and to read it about ten more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels.registers import ByteLevel, ByteProducts
from mlcbuild.compiler.kernels.building import Buffer, Expression, float32, lanes, loop, prefetch, splat, store
from mlcbuild.compiler.kernels.matmul_pattern import PackedMatrix

BITS = 4  # of the integers; a word has eight
_PER_WORD = 8
_DIGITS = 3
_ROWS = 2 * _DIGITS  # a word's digits of numbers at even places, then at odd ones, from the lowest digits on
_NIBBLES = 0x0F0F0F0F


def has_byte_products(matrix: PackedMatrix, level: ByteLevel, sizes: Collection[int]) -> bool:
    """Whether a matrix is multiplied so, by registers of these numbers of words: it is packed in four bits, and has an
    offset that is one of its integers."""
    four_bits = matrix.bits == BITS and matrix.per_word == _PER_WORD and matrix.offset in range(1 << BITS)
    return four_bits and all(size in level.products for size in sizes)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Registers of `width` words, so many `times` one after another from a row's `first_word` on. Those of a row come
    with the widest first."""

    first_word: int
    times: int
    width: int


@dataclass(frozen=True, kw_only=True)
class Digits:
    """A vector as digits: six rows of bytes, four to a word of the matrix; for each word the power of two that its
    integers count, and what all of its sums start with, as the matrix's integers have an offset."""

    bytes: Buffer
    units: Buffer
    start: Buffer

    @property
    def buffers(self) -> list[Buffer]:
        return [self.bytes, self.units, self.start]

    @property
    def regions(self) -> list[Any]:
        return [buffer[tuple(slice(0, size) for size in buffer.shape)] for buffer in self.buffers]


def digits_for(words: int) -> Digits:
    """Buffers for the vector of rows of so many words."""
    return Digits(
        bytes=tirx.decl_buffer((_ROWS * words,), "int32", name="digits"),
        units=tirx.decl_buffer((words,), "float32", name="units"),
        start=tirx.decl_buffer((words,), "int32", name="start"),
    )


def split_x(digits: Digits, runs: Sequence[Run], offset: int, x: Callable[[Expression], Expression]) -> None:
    """Writes the digits of a vector, whose numbers are had by their places, eight at once."""
    for run in runs:
        with loop(run.times) as number, loop(run.width) as lane:
            _split_eight(digits, run.first_word + number * run.width, lane, run.width, offset, x)


def _split_eight(
    digits: Digits,
    first: Expression,
    lane: Expression,
    width: int,
    offset: int,
    x: Callable[[Expression], Expression],
) -> None:
    """Those of the numbers of one word, by its place in a register, whose first word is `first`."""
    count = _PER_WORD
    word = first + lane
    values = T.bind(float32(x(lanes(word * count, count)), count))
    bits = T.reinterpret(f"int32x{count}", values) & splat(T.int32(0x7FFFFFFF), count)
    largest = T.bind(T.call_llvm_intrin("int32", "llvm.vector.reduce.smax", bits))
    # The exponent of the largest, or the next one, if a number of 24 bits had a first digit above 127; 255 for what
    # is no number. 2**(exponent - 127) is 2**22 units; no unit is below 2**-126.
    exponent = T.bind(tirx.max((largest + T.int32(0x010102)) >> T.int32(23), T.int32(23)))
    is_number, no_number = largest < T.int32(0x7F800000), T.int32(0x7FC00000)
    unit = tirx.Select(is_number, (exponent - T.int32(22)) << T.int32(23), no_number)
    store(digits.units, T.reinterpret("float32", unit), word)
    factor = T.reinterpret("float32", (T.int32(276) - exponent) << T.int32(23))
    rounded = tirx.nearbyint(values * splat(factor, count))
    integers = T.bind(T.Cast(f"int32x{count}", rounded))
    total = T.call_llvm_intrin("int32", "llvm.vector.reduce.add", integers)
    store(digits.start, total * T.int32(-offset), word)
    # Bytes with a sign: a lower one above 127 is 256 less, and the next one is one more.
    lower = splat(T.int32(0x8080), count)
    signed = T.bind(T.reinterpret(f"int8x{4 * count}", (integers + lower) ^ lower))
    # Bytes of one digit of every second number become neighbours, all by one exchange.
    order = [4 * place + digit for digit in range(_DIGITS) for odd in range(2) for place in range(odd, count, 2)]
    mixed = T.Shuffle([signed], [T.int32(place) for place in (*order, *range(len(order), 4 * count))])
    rows = T.bind(T.reinterpret(f"int32x{count}", mixed))
    for row in range(_ROWS):
        place = first * _ROWS + row * width + lane
        store(digits.bytes, T.Shuffle([rows], [T.int32(row)]), place)


def row_totals(
    level: ByteLevel,
    matrix: PackedMatrix,
    runs: Sequence[Run],
    rows: Sequence[Expression],
    digits: Digits,
    ahead: int,
) -> list[Expression]:
    """The sums of several rows, whose words are asked for so many before they are read."""
    sums: list[list[tuple[Expression, int]]] = [[] for _ in rows]
    for run in runs:
        count = run.width
        whole = lanes(0, count)
        totals = [T.alloc_buffer((count,), "float32") for _ in rows]
        for total in totals:
            store(total, splat(T.float32(0), count), whole)
        with loop(run.times) as number:
            first = run.first_word + number * count
            for n, total in zip(rows, totals, strict=True):
                if ahead:
                    prefetch(matrix.words[n, first + ahead])
                integers = float32(_word_sums(level.products[count], matrix, n, first, count, digits), count)
                found = integers * digits.units[lanes(first, count)]
                store(total, total[whole] + found * group_scales(matrix, n, first, count), whole)
        for mine, total in zip(sums, totals, strict=True):
            mine.append((T.bind(total[whole]), count))
    return [_folded(mine) for mine in sums]


def _word_sums(
    products: ByteProducts, matrix: PackedMatrix, n: Expression, first: Expression, count: int, digits: Digits
) -> Expression:
    """The sums of `count` words' integers, less their offset, times the vector's, from a row's word `first` on."""
    width = 4 * count
    words = T.bind(matrix.words[n, lanes(first, count)])
    mask = splat(T.uint32(_NIBBLES), count)
    halves = [
        T.bind(T.reinterpret(f"int8x{width}", part & mask)) for part in (words, words >> splat(T.uint32(BITS), count))
    ]
    where = lanes(first, count)

    def bytes_of(row: int) -> Expression:
        return T.reinterpret(f"int8x{width}", digits.bytes[lanes(first * _ROWS + row * count, count)])

    def shifted(value: Expression) -> Expression:
        return value << splat(T.int32(8), count)

    def pairs(digit: int, factor: int) -> Expression:
        kind = f"int16x{2 * count}"
        even, odd = (
            T.call_llvm_intrin(kind, products.pairs, half, bytes_of(2 * digit + place))
            for place, half in enumerate(halves)
        )
        factors = splat(T.int16(factor), 2 * count)
        return T.call_llvm_intrin(f"int32x{count}", products.pairs_of_pairs, even + odd, factors)

    start = digits.start[where]
    if not products.fours:
        return start + pairs(0, 1) + pairs(1, 256) + shifted(pairs(2, 256))
    total: Expression = splat(T.int32(0), count)
    for digit in reversed(range(_DIGITS)):
        for place, half in enumerate(halves):
            total = T.call_llvm_intrin(f"int32x{count}", products.fours, total, half, bytes_of(2 * digit + place))
        total = shifted(total) if digit else total
    return total + start


def group_scales(matrix: PackedMatrix, n: Expression, first_word: Expression, count: int) -> Expression:
    """The scale of each of `count` words, read together."""
    words_per_group = matrix.group // matrix.per_word
    first_group = tirx.floordiv(first_word, words_per_group)
    if words_per_group >= count:
        return splat(float32(matrix.scales[n, first_group], 1), count)
    groups = count // words_per_group
    scales = T.bind(float32(matrix.scales[n, lanes(first_group, groups)], groups))
    # A shuffle has no more lanes than what it is of.
    return T.Shuffle([scales] * words_per_group, [T.int32(lane // words_per_group) for lane in range(count)])


def _folded(sums: list[tuple[Expression, int]]) -> Expression:
    """The sum of all lanes of vectors, the widest of which come first."""
    total, count = sums[0]
    rest = sums[1:]
    while count > 1:
        count //= 2
        halves = [T.Shuffle([total], [T.int32(half * count + lane) for lane in range(count)]) for half in range(2)]
        total = T.bind(halves[0] + halves[1])
        while rest and rest[0][1] == count:
            total = T.bind(total + rest[0][0])
            rest = rest[1:]
    return total
