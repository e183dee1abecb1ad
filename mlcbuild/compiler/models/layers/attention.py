"""Attention over the paged KV cache."""

from __future__ import annotations

from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.models.architecture.decoder import AttentionConfig, NormScope, TemperatureTuning
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.rotary_tables import RotaryTable
from mlcbuild.compiler.models.caches.kv_cache import attend
from mlcbuild.compiler.models.layers.norm import make_head_norm
from mlcbuild.compiler.models.layers.rotation import turned
from mlcbuild.compiler.models.layers.temperature import tempered
from mlcbuild.compiler.quantization.layers import Linear
from mlcbuild.compiler.quantization.reader import Reader

OfPositions = RotaryTable | TemperatureTuning
"""What follows of a token's position, computed once for all layers that have the same."""


class Sinks(nn.Module):  # type: ignore[misc]
    """For each query head, a score that belongs to no key: `weight` (heads,)."""

    def __init__(self, heads: int, *, dtype: str) -> None:
        self.weight = nn.Parameter((heads,), dtype)


class Attention:
    """The attention of the layer called `layer`.

    `modules` are its modules by their names below the layer.
    """

    def __init__(
        self, config: AttentionConfig, names: DecoderNames, hidden_size: int, reader: Reader, *, layer: str
    ) -> None:
        self.config = config
        width = config.head_dim
        queries = config.query_heads * (2 if config.output_gate else 1)
        rows = [count * width for count in (queries, config.key_value_heads, config.key_value_heads)]
        products = dict(zip(names.apart, rows, strict=True)) if names.apart else {names.qkv: sum(rows)}
        self.qkv = {
            name: Linear(hidden_size, size, reader=reader, bias=config.qkv_bias, name=f"{layer}.{name}")
            for name, size in products.items()
        }
        self.output = Linear(
            config.query_heads * width,
            hidden_size,
            reader=reader,
            bias=config.output_bias,
            name=f"{layer}.{names.output}",
        )
        self.modules: dict[str, nn.Module] = {**self.qkv, names.output: self.output}
        self.norms: list[nn.Module] = []
        if config.query_key_norm is not None:
            dtype = reader.scheme.model_dtype
            for name, heads in ((names.query_norm, config.query_heads), (names.key_norm, config.key_value_heads)):
                self.norms.append(make_head_norm(config.query_key_norm, heads, width, dtype=dtype))
                self.modules[name] = self.norms[-1]

        self.sinks: Sinks | None = None
        if config.sinks:
            self.sinks = Sinks(config.query_heads, dtype=reader.scheme.model_dtype)
            self.modules[names.sinks] = self.sinks

    def parts(self, *, single: bool) -> list[nn.Module]:  # noqa: ARG002
        """The modules whose parameters a call reads. `single`: the call has one token of each sequence."""
        return list(self.modules.values())

    @property
    def of_positions(self) -> tuple[OfPositions, ...]:
        """What is computed from the positions of tokens and passed to each call: rotary frequencies, temperatures."""
        found = (self.config.rotary.table, self.config.temperature)
        return tuple(each for each in found if each is not None)

    def __call__(
        self, hidden: nn.Tensor, cache: PagedKVCache, layer: relax.Expr, *of_positions: nn.Tensor
    ) -> nn.Tensor:
        """(batch, n, hidden) → the same, at the layer of a number. `of_positions` are tensors of `rotation.turns` and
        `temperature.temperatures`, as the property says."""
        values = dict(zip(self.of_positions, of_positions, strict=True))
        turns = None if self.config.rotary.table is None else values[self.config.rotary.table]
        factors = None if self.config.temperature is None else values[self.config.temperature]
        products = [product(hidden) for product in self.qkv.values()]
        qkv = products[0] if len(products) == 1 else nn.op.concat(products, dim=-1)
        if self.config.qkv_clip and not self.norms:
            qkv = self._clipped(qkv)

        given = qkv
        if self.config.output_gate:
            qkv = nn.op.tensor_expr_op(self._without_gates, "without_gates", [given])

        def change(heads: nn.Tensor) -> nn.Tensor:
            heads = self._normed(heads) if self.norms else heads
            heads = self._clipped(heads) if self.norms and self.config.qkv_clip else heads
            heads = heads if turns is None else turned(heads, turns, self.config)
            return heads if factors is None else tempered(heads, factors, self.config)

        changes = self.norms or values
        attended = attend(
            cache,
            qkv,
            layer=layer,
            config=self.config,
            change=change if changes else None,
            sinks=None if self.sinks is None else self.sinks.weight,
        )
        if self.config.output_gate:
            attended = nn.op.tensor_expr_op(self._gated, "gate_attended", [attended, given])
        return self.output(attended)

    def _without_gates(self, given: te.Tensor) -> te.Tensor:
        """(batch, n, queries and gates of heads in turn, keys, values) without the gates."""
        width = self.config.head_dim
        queries = self.config.query_heads * width

        def element(batch: tirx.Var, token: tirx.Var, place: tirx.Var) -> tirx.Expr:
            before = tirx.if_then_else(place < queries, place // width * width, queries)
            return given[batch, token, place + before]

        return te.compute((*given.shape[:2], given.shape[2] - queries), element, name="without_gates")

    def _gated(self, attended: te.Tensor, given: te.Tensor) -> te.Tensor:
        """What was attended, times the sigmoid of the gates."""
        width = self.config.head_dim

        def element(batch: tirx.Var, token: tirx.Var, place: tirx.Var) -> tirx.Expr:
            gate = given[batch, token, place + (place // width + 1) * width].astype("float32")
            return (attended[batch, token, place].astype("float32") * tirx.sigmoid(gate)).astype(attended.dtype)

        return te.compute(attended.shape, element, name="gated")

    def _clipped(self, x: nn.Tensor) -> nn.Tensor:
        bound = self.config.qkv_clip
        return nn.op.wrap_nested(relax.op.clip(x._expr, -bound, bound), "clip")

    def _normed(self, heads: nn.Tensor) -> nn.Tensor:
        """(tokens, all heads, head_dim) → the same, with queries and keys normed."""
        config = self.config
        assert config.query_key_norm is not None
        parts = list(nn.op.split(heads, [config.query_heads, config.query_heads + config.key_value_heads], axis=1))
        for place, norm in enumerate(self.norms):
            tokens, count, width = parts[place].shape
            if config.query_key_norm.scope is NormScope.ALL_HEADS:
                together = norm(nn.op.reshape(parts[place], (tokens, count * width)))
                parts[place] = nn.op.reshape(together, (tokens, count, width))
            else:
                parts[place] = norm(parts[place])
        return nn.op.concat(parts, dim=1)
