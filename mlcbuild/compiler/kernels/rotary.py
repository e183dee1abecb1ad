"""The angles of rotary position embeddings, by TVM's frequency rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.relax.frontend.nn.llm.position_embedding import switch_rope_freq_func

from mlcbuild.compiler.kernels.building import Expression

_RULES = (None, "llama3")  # the angle is position times frequency, and the same at d and d + head_dim / 2


def supports(rope_scaling: Mapping[str, Any], head_dim: int) -> bool:
    """Whether angles of this rule can be computed here."""
    return rope_scaling.get("rope_type") in _RULES and head_dim % 2 == 0


def angle(
    position: Expression, d: Expression, *, head_dim: int, theta: Expression, rope_scaling: Mapping[str, Any]
) -> Expression:
    """The angle at a position, float32, and a place d < head_dim / 2; `theta` is the base of the frequencies."""
    cosine, _, bindings = switch_rope_freq_func(dict(rope_scaling))(position, d, head_dim, theta, "float32")
    result = cosine.args[0]
    for variable, value in bindings.items():
        result = tirx.Let(variable, value, result)
    return result
