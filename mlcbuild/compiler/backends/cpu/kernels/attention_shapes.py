"""Which tiles attention of many tokens may have: its kernels are written with the default, and again with what
measurements have chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels import attention
from mlcbuild.compiler.backends.cpu.kernels.attention_tiles import TileShape, tokens_of_tiles
from mlcbuild.compiler.kernels.measured_inputs import MeasuredInputs, paged_prefill_inputs, ragged_prefill_inputs
from mlcbuild.compiler.kernels.shapes import ShapedRule, Written, written_by, written_of
from mlcbuild.compiler.models.architecture.attention_rules import AttentionRules

_VALUES = {"tokens": (4, 8, 16, 32), "keys": (32, 64, 128, 256)}
_PAGED, _RAGGED = "cpu.paged_prefill", "cpu.ragged_prefill"


def paged_prefill(original: tirx.PrimFunc, **given: Any) -> tirx.PrimFunc:
    """`attention.paged_prefill` of a cache without a window, whose tiles can be chosen."""
    return _written(_PAGED, attention.paged_prefill, original, **given)


def ragged_prefill(original: tirx.PrimFunc, **given: Any) -> tirx.PrimFunc:
    """`attention.ragged_prefill` without a window, whose tiles can be chosen."""
    return _written(_RAGGED, attention.ragged_prefill, original, **given)


def _written(
    rule: str,
    make: Callable[..., tirx.PrimFunc],
    original: tirx.PrimFunc,
    *,
    rope_scaling: Mapping[str, Any],
    rules: AttentionRules,
    row_lanes: int,
    shape: TileShape | None = None,
) -> tirx.PrimFunc:
    made = make(original, rope_scaling=rope_scaling, rules=rules, row_lanes=row_lanes, shape=shape)
    if rules.sinks:
        return made  # Tiles know no score of no key.
    return written_by(rule, made, rope_scaling=dict(rope_scaling), rules=asdict(rules), row_lanes=row_lanes)


def _rule(
    name: str, make: Callable[..., tirx.PrimFunc], inputs: Callable[[tirx.PrimFunc], MeasuredInputs]
) -> ShapedRule[Written, TileShape]:
    def build(written: Written, shape: TileShape) -> tirx.PrimFunc:
        given = {**written.given, "rules": AttentionRules(**written.given["rules"])}
        return make(written.func, **given, shape=shape)

    return ShapedRule(
        name=name,
        shape=TileShape,
        values=_VALUES,
        match=written_of(name),
        default=lambda _: TileShape(),
        fits=_fits,
        build=build,
        inputs=lambda written: inputs(written.func),
    )


def _fits(written: Written, shape: TileShape) -> bool:
    """Whether heads fill such tiles; the default is among them by its own name alone."""
    queries, keys = written.func.params[0], written.func.params[2]
    key_heads = int(keys.shape[2] if len(keys.shape) == 5 else keys.shape[1])
    group, head_dim = int(queries.shape[1]) // key_heads, int(queries.shape[2])
    fitting = tokens_of_tiles(group, head_dim, int(written.given["row_lanes"]))
    return shape.tokens in fitting and (shape.tokens, shape.keys) != (fitting[0], TileShape().keys)


tune_paged_prefill = _rule(_PAGED, paged_prefill, paged_prefill_inputs)
tune_ragged_prefill = _rule(_RAGGED, ragged_prefill, ragged_prefill_inputs)
