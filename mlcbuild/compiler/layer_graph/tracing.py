"""From a family's nn module to the `LayerGraph` of one of its layers.

The layer is the one that libraries are made of: its Relax is translated, operator by operator, so nothing is written
for a family. Attention over the paged KV cache becomes attention over plain tensors (`layer_graph.attention`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.layer_graph.attention import CacheInputs, attended, rotary_table, rotated
from mlcbuild.compiler.layer_graph.building import GraphBuilder
from mlcbuild.compiler.layer_graph.graph import INTEGER, LayerGraph, Value, Weight
from mlcbuild.compiler.layer_graph.relax_operators import OPERATORS
from mlcbuild.compiler.models.architecture.decoder import AttentionConfig, DecoderConfig
from mlcbuild.compiler.models.architecture.rotary_tables import RotaryTable
from mlcbuild.compiler.models.description import ModelDescription
from mlcbuild.compiler.models.layers.decoder_layer import DecoderLayer
from mlcbuild.compiler.models.networks.causal_lm import CachedLM
from mlcbuild.errors import StageError

_OWN = "layer."  # what names of parameters begin with here
_CACHE_ATTENTION = "vm.builtin.attention_kv_cache_attention_with_fused_qkv"
_ROTATION = "rotate"  # the function that `layers.rotation.turned` adds
HIDDEN, POSITIONS, PAST_KEYS, PAST_VALUES = "hidden", "positions", "past_keys", "past_values"
OUTPUT, KEYS, VALUES = "output", "keys", "values"


class _OneLayer(nn.Module):  # type: ignore[misc]
    """A layer alone, from its own norm on."""

    def __init__(self, layer: DecoderLayer) -> None:
        self.layer = layer

    def forward(self, hidden: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        return self._behind(hidden, cache)

    def forward_turned(self, hidden: nn.Tensor, cache: PagedKVCache, turns: nn.Tensor) -> nn.Tensor:
        return self._behind(hidden, cache, turns)

    def _behind(self, hidden: nn.Tensor, cache: PagedKVCache, *turns: nn.Tensor) -> nn.Tensor:
        first = self.layer.first_norm
        normed = hidden if first is None else first(hidden)
        return self.layer.forward(hidden, normed, cache, relax.prim_value(0), None, *turns)[0]


def trace_layer(
    built: object, description: ModelDescription, number: int, *, tokens: int, cache_tokens: int
) -> LayerGraph:
    """The graph of the only layer of a module. Raises StageError with everything in it that no graph can have."""
    layer = built.decoder.layers[0] if isinstance(built, CachedLM) else None
    if not isinstance(built, CachedLM) or not isinstance(layer, DecoderLayer):
        raise StageError(
            f"layer {number} of this {description.family} has no attention over a KV cache: it cannot be exported"
        )
    whole = cast("DecoderConfig", built.config)
    config = whole.of_layer(number)
    if exotic := _exotic(config.attention):
        raise _refusal(description, number, ", ".join(exotic))
    table = layer.of_positions[0] if layer.of_positions else None
    specification: dict[str, object] = {
        "hidden": nn.spec.Tensor([1, tokens, config.hidden_size], built.model_dtype),
        "cache": nn.spec.Object(object_type=PagedKVCache),
    }
    name = "forward"
    if isinstance(table, RotaryTable):
        name, specification["turns"] = "forward_turned", nn.spec.Tensor([tokens, len(table.frequencies), 2], "float32")
    specification["$"] = {"param_mode": "plain", "effect_mode": "none"}
    module, parameters = _OneLayer(layer).export_tvm(spec={name: specification})
    translation = _Translation(
        attention=config.attention,
        window=_window(config.attention, description),
        tokens=tokens,
        places=cache_tokens,
    )
    graph = translation.graph(
        module[name],
        [own.removeprefix(_OWN) for own, _ in parameters],
        family=description.family,
        prefix=f"{description.layers.name}.{number}.",
    )
    if translation.wrong:
        raise _refusal(description, number, f"the operators {', '.join(translation.wrong)}")
    return graph


def _exotic(attention: AttentionConfig) -> list[str]:
    """What of attention is not computed over plain tensors here."""
    table = None if attention.latent is not None else rotary_table(attention)
    found = {
        "latent attention": attention.latent is not None,
        "attention within pieces of the text": attention.chunked,
        "ALiBi": attention.alibi,
        "scores of no key (sinks)": attention.sinks,
        "temperatures of queries": attention.temperature is not None,
        "rotary frequencies that depend on the length of the context": table is not None and table.depends_on_context,
    }
    return [what for what, there in found.items() if there]


def _refusal(description: ModelDescription, number: int, wrong: str) -> StageError:
    return StageError(
        f"layer {number} of this {description.family} cannot be exported, because it has {wrong}",
        advice=("a layer is exported if it consists of operators that ONNX, JAX and PyTorch have alike",),
    )


def _window(attention: AttentionConfig, description: ModelDescription) -> int:
    """How many tokens a token of the layer sees; 0 for all."""
    if attention.window:
        return attention.window
    window = description.sizes.window
    return 0 if window is None else window.size


@dataclass(kw_only=True)
class _Translation:
    """`wrong` are the operators that could not be translated."""

    attention: AttentionConfig
    window: int
    tokens: int
    places: int
    wrong: dict[str, None] = field(default_factory=dict)
    build: GraphBuilder = field(default_factory=GraphBuilder)
    made: dict[Any, Any] = field(default_factory=dict)  # Relax's variables → values, or tuples of these

    def graph(self, function: Any, names: list[str], *, family: str, prefix: str) -> LayerGraph:
        attention = self.attention
        cache_shape = (1, attention.key_value_heads, self.places, attention.head_dim)
        hidden = Value(name=HIDDEN, shape=tuple(map(int, function.params[0].ty.shape)))
        positions = Value(name=POSITIONS, shape=(self.tokens,), dtype=INTEGER)
        cache = CacheInputs(
            positions=positions,
            keys=Value(name=PAST_KEYS, shape=cache_shape),
            values=Value(name=PAST_VALUES, shape=cache_shape),
        )
        self.cache, self.kept = cache, {KEYS: "", VALUES: ""}
        self.made[function.params[0]] = hidden
        weights: list[Weight] = []
        for variable, name in zip(function.params[len(function.params) - len(names) :], names, strict=True):
            value = Value(name=f"w{len(weights)}", shape=tuple(map(int, variable.ty.shape)))
            weights.append(Weight(value=value, name=name))
            self.made[variable] = value
        for block in function.body.blocks:
            for binding in block.bindings:
                self.made[binding.var] = self._translated(binding.value)
        result = None if self.wrong else self.made[function.body.body]
        return LayerGraph(
            family=family,
            prefix=prefix,
            inputs=(hidden, positions, cache.keys, cache.values),
            weights=tuple(weights),
            constants=tuple(self.build.constants),
            nodes=tuple(self.build.nodes),
            outputs={OUTPUT: "" if result is None else result.name, **self.kept},
        )

    def _translated(self, value: Any) -> Any:
        """A value or a tuple of values; None where something before it could not be translated."""
        if isinstance(value, relax.Var):
            return self.made[value]
        if isinstance(value, relax.TupleGetItem):
            whole = self.made[value.tuple_value]
            return None if whole is None else whole[value.index]
        if not isinstance(value, relax.Call):
            return self._argument(value)
        name = _name(value)
        if name == _CACHE_ATTENTION:
            given = self.made[value.args[1].fields[3]]
            return None if given is None else self._attended(given, float(value.args[1].fields[2].value))
        if name.rstrip("0123456789") == _ROTATION:
            given = self.made[value.args[1].fields[0]]
            return None if given is None else self._rotated(given)
        if name not in OPERATORS:
            self.wrong[name] = None
            return None
        arguments = [self._argument(each) for each in value.args]
        if any(each is None or (isinstance(each, tuple) and None in each) for each in arguments):
            return None
        try:
            return OPERATORS[name](self.build, arguments, value.attrs)
        except ValueError as error:
            self.wrong[f"{name} ({error})"] = None
            return None

    def _argument(self, value: Any) -> Any:
        if isinstance(value, relax.Tuple):
            return tuple(self._argument(each) for each in value.fields)
        if isinstance(value, relax.ShapeExpr):
            return tuple(map(int, value.values))
        if isinstance(value, GenericConst):
            numbers = value.value.numpy()
            shape = numbers.shape or (1,)
            return self.build.constant(numbers.reshape(-1).tolist(), shape)
        return self.made[value] if isinstance(value, relax.Var) else float(value.value)

    def _attended(self, qkv: Value, scale: float) -> Value:
        table = rotary_table(self.attention)
        if table is not None and self.attention.rotary.in_cache:
            qkv = rotated(self.build, qkv, table, self.attention, self.cache.positions)
        done = attended(self.build, qkv, self.cache, self.attention, scale=abs(scale), window=self.window)
        self.kept = {KEYS: done.keys.name, VALUES: done.values.name}
        return done.heads

    def _rotated(self, qkv: Value) -> Value:
        table = self.attention.rotary.table
        assert table is not None
        return rotated(self.build, qkv, table, self.attention, self.cache.positions)


def _name(call: Any) -> str:
    """What a call calls: an operator, a function of the module, or one of TVM's runtime."""
    name = str(call.op.name) if hasattr(call.op, "name") else type(call.op).__name__
    if name in ("relax.call_tir", "relax.call_dps_packed", "relax.call_pure_packed"):
        called = call.args[0]
        return str(getattr(called, "global_symbol", None) or getattr(called, "name_hint", called))
    return name
