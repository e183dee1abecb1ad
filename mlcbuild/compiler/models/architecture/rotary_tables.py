"""Tables of rotary frequencies: what a model that rotates queries and keys itself multiplies positions by.

The rules are those of transformers' `modeling_rope_utils`, with YaRN after arXiv:2309.00071 and LongRoPE after
arXiv:2402.13753.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mlcbuild.compiler.models.config import MAX_CONTEXT, ConfigReader


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryTable:
    """`frequencies`, of each pair that is turned, in radians a position; they are those of the first
    2 · len(frequencies) elements of a head. The turned elements are multiplied by `attention_factor`.

    A library whose context is longer than `original_positions` has `long_frequencies` instead, where there are some. If
    `dynamic_factor` is not 0, it has those of dynamic NTK scaling by that factor, at the length of its context.
    """

    frequencies: tuple[float, ...]
    long_frequencies: tuple[float, ...] = ()
    original_positions: int = 0
    attention_factor: float = 1.0
    dynamic_factor: float = 0.0

    @property
    def depends_on_context(self) -> bool:
        """Whether frequencies depend on a library's context."""
        return bool(self.long_frequencies) or self.dynamic_factor > 0

    def __post_init__(self) -> None:
        if self.dynamic_factor and len(self.frequencies) == 1:
            raise ValueError("dynamic NTK scaling divides by the number of elements that are turned, less two")
        if not self.frequencies or len(self.long_frequencies) not in (0, len(self.frequencies)):
            raise ValueError(f"{len(self.frequencies)} and {len(self.long_frequencies)} rotary frequencies")


def plain_frequencies(base: float, rotated: int) -> tuple[float, ...]:
    """base^(-2 i / rotated), of each pair i of the elements that are `rotated`."""
    return tuple(base ** (-place / rotated) for place in range(0, rotated, 2))


def llama3_frequencies(
    plain: Sequence[float], *, factor: float, low: float, high: float, original: int
) -> tuple[float, ...]:
    """Llama 3.1's rule: low frequencies are divided by the factor, high ones are not. Where `low` is `high`, none lie
    between."""
    found = []
    for frequency in plain:
        turns = original * frequency / (2 * math.pi)
        smooth = min(1.0, max(0.0, (turns - low) / (high - low))) if low < high else float(turns > high)
        found.append((1 - smooth) * frequency / factor + smooth * frequency)
    return tuple(found)


def yarn_table(reader: ConfigReader, *, base: float, rotated: int, original: int, positions: int) -> RotaryTable:
    """YaRN by the fields of `reader`: pairs that turn often keep their frequency, those that turn seldom are
    interpolated, and those between are blended."""
    ratio = max(1.0, positions / original)
    factor = reader.number("factor", low=1.0, high=1e6, default=ratio)
    fast = reader.number("beta_fast", low=1e-6, high=1e6, default=32.0)
    slow = reader.number("beta_slow", low=1e-6, high=1e6, default=1.0)
    begin, end = (rotated * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (fast, slow))
    if reader.boolean("truncate", default=True):
        begin, end = math.floor(begin), math.ceil(end)
    begin, end = max(begin, 0), min(end, rotated - 1)
    width = end - begin or 0.001
    found = []
    for place, frequency in enumerate(plain_frequencies(base, rotated)):
        interpolated = min(1.0, max(0.0, (place - begin) / width))
        found.append(frequency / factor * interpolated + frequency * (1 - interpolated))
    return RotaryTable(frequencies=tuple(found), attention_factor=_yarn_attention(reader, factor))


def _yarn_attention(reader: ConfigReader, factor: float) -> float:
    if reader.has("attention_factor"):
        return reader.number("attention_factor", low=1e-6, high=1e6)
    one, other = (reader.number(name, low=0.0, high=1e6, default=0.0) for name in ("mscale", "mscale_all_dim"))
    if one and other:
        return _magnitude(factor, one) / _magnitude(factor, other)
    return _magnitude(factor, 1.0)


def _magnitude(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def longrope_table(reader: ConfigReader, *, base: float, rotated: int, original: int, positions: int) -> RotaryTable:
    """LongRoPE by the fields of `reader`: a factor for each pair, for short texts and for long ones."""
    factor = reader.number("factor", low=1e-6, high=1e6, default=positions / original)
    grown = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0
    plain = plain_frequencies(base, rotated)
    return RotaryTable(
        frequencies=_divided(plain, _factors(reader, "short_factor", len(plain))),
        long_frequencies=_divided(plain, _factors(reader, "long_factor", len(plain))),
        original_positions=original,
        attention_factor=reader.number("attention_factor", low=1e-6, high=1e6, default=grown),
    )


def dynamic_table(reader: ConfigReader, *, base: float, rotated: int, positions: int) -> RotaryTable:
    """Dynamic NTK scaling by the fields of `reader`: in texts of up to `positions` tokens, frequencies are plain."""
    factor = reader.number("factor", low=1.0, high=1e6)
    if rotated < 4:
        raise reader.fail("factor", f"is {factor:g}, but {rotated} elements of a head that are turned cannot be scaled")
    return RotaryTable(
        frequencies=plain_frequencies(base, rotated), original_positions=positions, dynamic_factor=factor
    )


def _divided(frequencies: Sequence[float], factors: Sequence[float]) -> tuple[float, ...]:
    return tuple(frequency / factor for frequency, factor in zip(frequencies, factors, strict=True))


def _factors(reader: ConfigReader, name: str, count: int) -> tuple[float, ...]:
    found = reader.value(name)
    if not isinstance(found, list) or len(found) != count:
        raise reader.fail(
            name,
            f"has to be a list of {count} numbers, one for each pair of elements that is turned, by the size of heads "
            '("head_dim") and the part of them that is ("partial_rotary_factor")',
        )
    items = ConfigReader({str(place): value for place, value in enumerate(found)}, f'{reader.where}, "{name}"')
    return tuple(items.number(str(place), low=1e-3, high=1e6) for place in range(count))


def original_positions(reader: ConfigReader, inner: ConfigReader, *, positions: int) -> int:
    """`original_max_position_embeddings`: transformers takes the field outside before the one inside, and the context's
    length without either."""
    name = "original_max_position_embeddings"
    holder = reader if reader.has(name) else inner
    return holder.integer(name, low=1, high=MAX_CONTEXT, default=positions)
