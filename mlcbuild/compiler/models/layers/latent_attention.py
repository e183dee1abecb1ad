"""Multi-head latent attention (`architecture.latent`) over the paged KV cache, with MLC-LLM's names.

What is in the cache is met with absorbed matrices; a pass's own tokens with keys and values that are made for them,
which costs less where there are many.
"""

from __future__ import annotations

from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.models.architecture.decoder import AttentionConfig, NormConfig
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.latent import LATENT_NAMES
from mlcbuild.compiler.models.architecture.rotary_tables import RotaryTable
from mlcbuild.compiler.models.caches import latent_cache
from mlcbuild.compiler.models.layers.experts import row_product
from mlcbuild.compiler.models.layers.known_sizes import is_one
from mlcbuild.compiler.models.layers.norm import make_norm
from mlcbuild.compiler.models.layers.rotation import turned_last
from mlcbuild.compiler.quantization.layers import Linear
from mlcbuild.compiler.quantization.reader import Reader


class AbsorbedMatrices(nn.Module):  # type: ignore[misc]
    """The two halves of `kv_b_proj` by heads: what queries are multiplied by (heads, rank, plain), and what sums of
    latent vectors are (heads, value_dim, rank). They are stored as they are, as in MLC-LLM."""

    def __init__(self, config: AttentionConfig, *, dtype: str) -> None:
        latent = config.latent
        assert latent is not None
        self.keys = nn.Parameter((config.query_heads, latent.rank, latent.plain_dim), dtype)
        self.values = nn.Parameter((config.query_heads, latent.value_dim, latent.rank), dtype)


class LatentAttention:
    """The attention of the layer called `layer`.

    `modules` are its modules and parameters by their names below the layer.
    """

    def __init__(
        self, config: AttentionConfig, names: DecoderNames, hidden_size: int, reader: Reader, *, layer: str
    ) -> None:
        assert config.latent is not None
        self.config, self.latent = config, config.latent
        latent, heads, own = self.latent, config.query_heads, LATENT_NAMES
        dtype = reader.scheme.model_dtype
        norm = NormConfig(epsilon=latent.epsilon)

        def linear(name: str, inputs: int, outputs: int, *, bias: bool = False) -> Linear:
            return Linear(inputs, outputs, reader=reader, bias=bias, name=f"{layer}.{name}")

        queries = heads * config.head_dim
        made: dict[str, nn.Module] = {}
        if latent.query_rank:
            made[own.query_down] = linear(own.query_down, hidden_size, latent.query_rank, bias=config.qkv_bias)
            made[own.query_norm] = make_norm(norm, latent.query_rank, dtype=dtype)
            made[own.query_up] = linear(own.query_up, latent.query_rank, queries)
        else:
            made[own.query] = linear(own.query, hidden_size, queries)
        self.queries = list(made.values())
        self.down = linear(own.down, hidden_size, latent.kept_dim, bias=config.qkv_bias)
        self.norm = make_norm(norm, latent.rank, dtype=dtype)
        self.up = linear(own.up, latent.rank, heads * (latent.plain_dim + latent.value_dim))
        self.absorbed = AbsorbedMatrices(config, dtype=dtype)
        self.output = linear(names.output, heads * latent.value_dim, hidden_size, bias=config.output_bias)
        made |= {own.down: self.down, own.norm: self.norm, own.up: self.up, names.output: self.output}
        self.modules: dict[str, nn.Module | nn.Parameter] = {
            **made,
            own.absorbed_keys: self.absorbed.keys,
            own.absorbed_values: self.absorbed.values,
        }

    def parts(self, *, single: bool) -> list[nn.Module]:
        """What has the parameters that a call reads, with one token of each sequence or more."""
        modules = [part for part in self.modules.values() if isinstance(part, nn.Module)]
        return [*(part for part in modules if not single or part is not self.up), self.absorbed]

    @property
    def of_positions(self) -> tuple[RotaryTable, ...]:
        """What a call is given the values of, at the positions of tokens."""
        return () if self.config.rotary.table is None else (self.config.rotary.table,)

    def __call__(
        self, hidden: nn.Tensor, cache: PagedKVCache, layer: relax.Expr, turns: nn.Tensor | None = None
    ) -> nn.Tensor:
        """(batch, n, hidden) → the same, at the layer of a number. `turns` are those of `rotation.turns`. A pass with n
        known to be 1 is one of a token of each sequence."""
        assert turns is not None
        batch, length, _ = hidden.shape
        tokens, heads, scale = batch * length, self.config.query_heads, self.config.softmax_scale
        queries = hidden
        for part in self.queries:
            queries = part(queries)
        queries = nn.op.reshape(queries, (tokens, heads, self.config.head_dim))
        queries = turned_last(queries, turns, self.config.rotary.form)
        kept = self._kept(hidden, turns)
        cache = latent_cache.append(cache, layer, kept)
        found, logarithms = latent_cache.attend_to_cache(
            cache, layer, scale, self._absorbed(queries), rank=self.latent.rank
        )
        attended = self._values_of(found)
        if not is_one(length):
            own = latent_cache.attend_to_own(cache, layer, scale, queries, *self._made_of(kept))
            attended = latent_cache.merged(*own, attended, logarithms)
        return self.output(nn.op.reshape(attended, (batch, length, heads * self.latent.value_dim)))

    def _kept(self, hidden: nn.Tensor, turns: nn.Tensor) -> nn.Tensor:
        """What the cache keeps of tokens: (tokens, rank + rotated)."""
        batch, length, _ = hidden.shape
        tokens, width = batch * length, self.latent.kept_dim
        vector, rotated = nn.op.split(self.down(hidden), [self.latent.rank], axis=-1)
        together = nn.op.concat([self.norm(vector), rotated], dim=-1)
        kept = turned_last(nn.op.reshape(together, (tokens, 1, width)), turns, self.config.rotary.form)
        return nn.op.reshape(kept, (tokens, width))

    def _made_of(self, kept: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        """Keys (tokens, heads, plain + rotated) and values (tokens, heads, value_dim)."""
        heads, plain, rank = self.config.query_heads, self.latent.plain_dim, self.latent.rank
        vector, _ = nn.op.split(kept, [rank], axis=-1)
        made = nn.op.reshape(self.up(vector), (kept.shape[0], heads, plain + self.latent.value_dim))

        def keys(made: te.Tensor, kept: te.Tensor) -> te.Tensor:
            def element(token: tirx.Var, head: tirx.Var, place: tirx.Var) -> tirx.Expr:
                own, shared = made[token, head, place], kept[token, rank + place - plain]
                return tirx.if_then_else(place < plain, own, shared)

            return te.compute((made.shape[0], heads, self.config.head_dim), element, name="latent_keys")

        def values(made: te.Tensor) -> te.Tensor:
            shape = (made.shape[0], heads, self.latent.value_dim)
            return te.compute(shape, lambda t, head, place: made[t, head, plain + place], name="latent_values")

        return (
            nn.op.tensor_expr_op(keys, "latent_keys", [made, kept]),
            nn.op.tensor_expr_op(values, "latent_values", [made]),
        )

    def _absorbed(self, queries: nn.Tensor) -> nn.Tensor:
        """Queries (tokens, heads, plain + rotated) as they meet what is kept: (tokens, heads, rank + rotated)."""
        rank, plain = self.latent.rank, self.latent.plain_dim
        rows = row_product(_by_heads(queries, plain), self.absorbed.keys)

        def beside(rows: te.Tensor, queries: te.Tensor) -> te.Tensor:
            tokens, heads, _ = queries.shape

            def element(token: tirx.Var, head: tirx.Var, place: tirx.Var) -> tirx.Expr:
                product, rotated = rows[head * tokens + token, 0, place], queries[token, head, plain + place - rank]
                return tirx.if_then_else(place < rank, product, rotated)

            return te.compute((tokens, heads, self.latent.kept_dim), element, name="absorbed_queries")

        return nn.op.tensor_expr_op(beside, "absorbed_queries", [rows, queries])

    def _values_of(self, sums: nn.Tensor) -> nn.Tensor:
        """Sums of latent vectors (tokens, heads, rank) as those of values (tokens, heads, value_dim)."""
        rows = row_product(_by_heads(sums, self.latent.rank), self.absorbed.values)

        def by_tokens(rows: te.Tensor, sums: te.Tensor) -> te.Tensor:
            tokens, heads, _ = sums.shape
            shape = (tokens, heads, rows.shape[2])
            return te.compute(shape, lambda t, head, place: rows[head * tokens + t, 0, place], name="by_tokens")

        return nn.op.tensor_expr_op(by_tokens, "by_tokens", [rows, sums])


def _by_heads(given: nn.Tensor, size: int) -> nn.Tensor:
    """The first `size` elements of (tokens, heads, …), head by head: (heads · tokens, 1, size)."""

    def compute(x: te.Tensor) -> te.Tensor:
        tokens, heads = x.shape[0], x.shape[1]

        def element(row: tirx.Var, _: tirx.Var, place: tirx.Var) -> tirx.Expr:
            return x[tirx.floormod(row, tokens), tirx.floordiv(row, tokens), place]

        return te.compute((heads * tokens, 1, size), element, name="by_heads")

    return nn.op.tensor_expr_op(compute, "by_heads", [given])
