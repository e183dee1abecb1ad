"""The rotation of queries and keys in the model, for rotary embeddings that the KV cache cannot apply.

Sines and cosines of a forward pass are computed once, from the positions that the cache gives, and every layer turns
its queries and keys by them.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.models.architecture.decoder import AttentionConfig
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.architecture.rotary_tables import RotaryTable
from mlcbuild.compiler.models.layers.context_window import unknown_context_window


def turns(cache: PagedKVCache, table: RotaryTable, tokens: tirx.Expr) -> nn.Tensor:
    """Cosine and sine, times the attention factor, of each pair at the position of each token: (tokens, pairs, 2),
    float32. `tokens` are those of the forward pass, in all."""
    builder = relax.BlockBuilder.current()
    positions = cache.get_query_positions(tokens)._expr
    tables = [relax.const(list(table.frequencies), "float32")]
    context = [builder.emit(unknown_context_window())] if table.depends_on_context else []
    if table.long_frequencies:
        tables.append(relax.const(list(table.long_frequencies), "float32"))

    def compute(places: te.Tensor, short: te.Tensor, *rest: Any) -> te.Tensor:
        def element(token: tirx.Var, pair: tirx.Var, part: tirx.Var) -> tirx.Expr:
            frequency = short[pair]
            if table.long_frequencies:
                long, window = rest
                is_long = tirx.any(window > table.original_positions, window < 0)
                frequency = tirx.if_then_else(is_long, long[pair], frequency)
            if table.dynamic_factor:
                frequency = frequency * _dynamic(table, pair, rest[0])
            angle = places[token].astype("float32") * frequency
            return tirx.if_then_else(part == 0, tirx.cos(angle), tirx.sin(angle)) * tirx.const(
                table.attention_factor, "float32"
            )

        return te.compute((*places.shape, len(table.frequencies), 2), element, name="turns")

    return nn.Tensor(_expr=builder.emit_te(compute, positions, *tables, *context, primfunc_name_hint="rotary_turns"))


def _dynamic(table: RotaryTable, pair: tirx.Var, window: tirx.Var) -> tirx.Expr:
    """What dynamic NTK scaling multiplies the frequency of a pair by. It multiplies the base of n elements by
    (f w / o - f + 1)^(n / (n - 2)), where w is the context window, o the original one, and f the factor."""
    factor = tirx.const(table.dynamic_factor, "float32")
    ratio = window.astype("float32") / tirx.const(float(table.original_positions), "float32")
    grown = tirx.max(factor * ratio - factor + tirx.const(1.0, "float32"), tirx.const(1.0, "float32"))
    exponent = pair.astype("float32") * tirx.const(-1.0 / (len(table.frequencies) - 1), "float32")
    return tirx.exp(exponent * tirx.log(grown))


def turned_last(heads: nn.Tensor, turns: nn.Tensor, form: RotaryForm) -> nn.Tensor:
    """Heads (tokens, heads, n), the last elements of each turned by `turns`."""
    size, pairs = int(heads.shape[2]), int(turns.shape[1])
    begin = size - 2 * pairs
    halves = form is RotaryForm.HALVES

    def compute(x: te.Tensor, by: te.Tensor) -> te.Tensor:
        def element(token: tirx.Var, head: tirx.Var, place: tirx.Var) -> tirx.Expr:
            inside = place - begin
            first = inside < pairs if halves else inside % 2 == 0
            pair = inside % pairs if halves else inside // 2
            step = tirx.if_then_else(first, pairs, -pairs) if halves else 1 - inside % 2 * 2
            own = x[token, head, place].astype("float32") * by[token, pair, 0]
            across = x[token, head, place + step].astype("float32") * by[token, pair, 1]
            moved = tirx.if_then_else(first, own - across, own + across).astype(x.dtype)
            return tirx.if_then_else(place < begin, x[token, head, place], moved)

        return te.compute(x.shape, element, name="turned")

    return nn.op.tensor_expr_op(compute, "rotate", [heads, turns])


def turned(qkv: nn.Tensor, turns: nn.Tensor, config: AttentionConfig) -> nn.Tensor:
    """Queries, keys and values (tokens, all heads, head_dim), with the first two turned by `turns`."""
    heads = config.query_heads + config.key_value_heads
    pairs = int(turns.shape[1])
    halves = config.rotary.form is RotaryForm.HALVES

    def compute(x: te.Tensor, by: te.Tensor) -> te.Tensor:
        def element(token: tirx.Var, head: tirx.Var, place: tirx.Var) -> tirx.Expr:
            first = place < pairs if halves else place % 2 == 0
            pair = place % pairs if halves else place // 2
            other = tirx.if_then_else(first, place + pairs, place - pairs) if halves else place + 1 - place % 2 * 2
            own = x[token, head, place].astype("float32") * by[token, pair, 0]
            across = x[token, head, other].astype("float32") * by[token, pair, 1]
            moved = tirx.if_then_else(first, own - across, own + across).astype(x.dtype)
            return tirx.if_then_else(tirx.all(head < heads, place < 2 * pairs), moved, x[token, head, place])

        return te.compute(x.shape, element, name="turned")

    return nn.op.tensor_expr_op(compute, "rotate", [qkv, turns])
