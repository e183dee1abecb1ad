"""How kernels of the KV cache take the rules of a model's attention (`architecture.attention_rules`) from the scale of
a layer."""

from __future__ import annotations

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.kernels.building import Expression
from mlcbuild.compiler.models.architecture.attention_rules import AttentionRules


def factor(scale: Expression, rules: AttentionRules) -> Expression:
    """What scores are multiplied by: the scale of a layer that sees less than the others is negative."""
    return tirx.abs(scale) if rules.window else scale


def sees_less(scale: Expression) -> Expression:
    """Whether a layer with this scale sees less than the others."""
    return scale < T.float32(0)


def slope(head: Expression, heads: int) -> Expression:
    """How much less a score is, a token that its key is back, for a head of so many with ALiBi: the powers of
    2**(-8 / n), n of them, for the largest power of two n that there are heads, then every second of 2**(-4 / n)."""
    whole = 1 << (heads.bit_length() - 1)
    power = T.Cast("float32", head + 1) * T.float32(-8 / whole)
    if whole < heads:
        between = T.Cast("float32", (head - whole) * 2 + 1) * T.float32(-4 / whole)
        power = tirx.Select(head < whole, power, between)
    return tirx.exp2(power)


def oldest_seen(rules: AttentionRules, query: Expression) -> Expression:
    """The position of the oldest key that a query of such a layer sees, by its own; it may be negative."""
    return query - tirx.floormod(query, rules.window) if rules.chunked else query - (rules.window - 1)
