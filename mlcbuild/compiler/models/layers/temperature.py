"""The temperature of attention that depends on a token's position: `decoder.TemperatureTuning` on TVM's nn modules.

The factors of a forward pass are computed once, from the positions that the cache gives, for all layers that have them.
"""

from __future__ import annotations

from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.models.architecture.decoder import AttentionConfig, TemperatureTuning


def temperatures(cache: PagedKVCache, tuning: TemperatureTuning, tokens: tirx.Expr) -> nn.Tensor:
    """The factor of each token's queries: (tokens,), float32. `tokens` are those of the forward pass, in all."""
    positions = cache.get_query_positions(tokens)._expr

    def compute(places: te.Tensor) -> te.Tensor:
        def element(token: tirx.Var) -> tirx.Expr:
            passed = tirx.floordiv(places[token] + tuning.offset, tuning.interval) + 1
            return tirx.const(1.0, "float32") + tirx.const(tuning.strength, "float32") * tirx.log(
                passed.astype("float32")
            )

        return te.compute(places.shape, element, name="temperatures")

    made = relax.BlockBuilder.current().emit_te(compute, positions, primfunc_name_hint="attention_temperatures")
    return nn.Tensor(_expr=made)


def tempered(qkv: nn.Tensor, factors: nn.Tensor, config: AttentionConfig) -> nn.Tensor:
    """Queries, keys and values (tokens, all heads, head_dim), with queries multiplied by the factors of tokens."""

    def compute(x: te.Tensor, by: te.Tensor) -> te.Tensor:
        def element(token: tirx.Var, head: tirx.Var, place: tirx.Var) -> tirx.Expr:
            own = x[token, head, place]
            moved = (own.astype("float32") * by[token]).astype(x.dtype)
            return tirx.if_then_else(head < config.query_heads, moved, own)

        return te.compute(x.shape, element, name="tempered")

    return nn.op.tensor_expr_op(compute, "temper", [qkv, factors])
