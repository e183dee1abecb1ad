"""The parameters of a decoder (`architecture.decoder`) by MLC-LLM's names (`decoder_names`), and what they are made of
in checkpoints (`checkpoints.layout`).

MLC-LLM has the queries, keys and values of a layer as one matrix, all of the queries first, and gate and up as one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormConfig, NormScope, Wiring
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig
from mlcbuild.compiler.models.architecture.recurrence import Recurrence
from mlcbuild.compiler.models.checkpoints.latent_parameters import latent_attention
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.checkpoints.mixture_parameters import LayerPlaces, mixture
from mlcbuild.compiler.models.checkpoints.operations import (
    AddOne,
    Concatenate,
    Flatten,
    Operation,
    Permute,
    Reshape,
    Split,
    Stack,
    UnitRows,
)
from mlcbuild.compiler.models.checkpoints.parameters import (
    CheckpointTensor,
    JoinedLayout,
    Parameter,
    ParameterList,
    TensorLayout,
    TiedTensor,
)
from mlcbuild.compiler.models.checkpoints.recurrence_parameters import recurrence_parameters
from mlcbuild.compiler.models.checkpoints.smoothed_inputs import smoothed_inputs
from mlcbuild.compiler.models.parameter_role import ParameterRole


def decoder_parameters(config: DecoderConfig, layout: CheckpointLayout) -> ParameterList:
    """Every parameter, in the order of the forward pass. A tied model has no head: its embedding serves, or is stored
    twice, if the head is apart."""
    builder = _Builder(config=config, layout=layout)
    names, hidden = config.names, config.hidden_size
    embedding = builder.matrix(names.embedding, layout.embedding, ParameterRole.EMBEDDING, config.vocab_size)
    found = [embedding]
    if config.learned_positions:
        places = config.learned_positions
        found.append(builder.matrix(names.positions, layout.positions, ParameterRole.EMBEDDING, places))
    for number in range(config.num_layers):
        found += _Layer(config=config.of_layer(number), layout=layout, number=number).parameters()
    found += builder.norm(names.norm, layout.norm, config.norm, hidden)
    head = builder.matrix(names.head, layout.head, ParameterRole.FINAL_FC, config.vocab_size)
    if layout.unit_head:
        head = replace(head, operations=(*head.operations, UnitRows()))
    smoothed = smoothed_inputs(config)
    if config.tie_word_embeddings:
        tied = TiedTensor(tensor=head.sources[0], equal_to=embedding.sources[0].name)
        if config.head_apart:
            found.append(replace(head, sources=embedding.sources))
        return ParameterList(parameters=tuple(found), ignored=layout.ignored, tied=(tied,), smoothed=smoothed)
    found.append(head)
    if config.head_bias:
        found.append(builder.vector(f"{names.head}.bias", _added(layout.head, "bias"), (config.vocab_size,)))
    return ParameterList(parameters=tuple(found), ignored=layout.ignored, smoothed=smoothed)


@dataclass(frozen=True, kw_only=True)
class _Builder:
    """Parameters that are in a checkpoint as they are."""

    config: DecoderConfig
    layout: CheckpointLayout

    def matrix(self, name: str, source: TensorName, role: ParameterRole, rows: int) -> Parameter:
        shape = (rows, self.config.hidden_size)
        tensor = self.as_it_is(_added(source, "weight"), shape)
        return Parameter(name=f"{name}.weight", role=role, shape=shape, sources=(tensor,))

    def vector(self, name: str, source: TensorName, shape: tuple[int, ...], *operations: Operation) -> Parameter:
        tensor = self.as_it_is(source, shape)
        return Parameter(
            name=name, role=ParameterRole.VECTOR, shape=shape, sources=(tensor,), operations=tuple(operations)
        )

    def as_it_is(
        self, name: TensorName, shape: tuple[int, ...], *, in_gguf: tuple[Operation, ...] = ()
    ) -> CheckpointTensor:
        gguf = TensorLayout(name=name.gguf, shape=shape, operations=in_gguf) if name.gguf else None
        others = tuple(TensorLayout(name=other, shape=shape) for other in self.layout.others(name.hugging_face))
        return CheckpointTensor(name=name.hugging_face, shape=shape, gguf=gguf, others=others)

    def norm(self, name: str, source: TensorName, config: NormConfig, *shape: int) -> list[Parameter]:
        """Weight and bias, where the norm has them."""
        found = []
        if config.weight:
            tensor = _added(source, "weight")
            if self.layout.one_added:
                stored = self.as_it_is(tensor, shape, in_gguf=(AddOne(times=-1),))
                found.append(
                    Parameter(
                        name=f"{name}.weight",
                        role=ParameterRole.VECTOR,
                        shape=shape,
                        sources=(stored,),
                        operations=(AddOne(),),
                    )
                )
            else:
                found.append(self.vector(f"{name}.weight", tensor, shape))
        if config.bias:
            found.append(self.vector(f"{name}.bias", _added(source, "bias"), shape))
        return found


@dataclass(frozen=True, kw_only=True)
class _Layer(_Builder):
    """The parameters of the layer of a number."""

    number: int

    def parameters(self) -> list[Parameter]:
        names, layout, wiring = self.config.names, self.layout, self.config.wiring
        found = []
        if wiring is not Wiring.NORM_AFTER:
            found += self.own_norm(names.attention_norm, layout.attention_norm)
        found += self.attention() if self.config.recurrence is None else self.recurrence(self.config.recurrence)
        if wiring in (Wiring.NORM_AFTER, Wiring.NORM_AROUND):
            found += self.own_norm(names.after_attention_norm, layout.after_attention_norm)
        if wiring in (Wiring.NORM_BEFORE, Wiring.NORM_AROUND, Wiring.PARALLEL):
            found += self.own_norm(names.feed_forward_norm, layout.feed_forward_norm)
        found += self.feed_forward()
        if wiring in (Wiring.NORM_AFTER, Wiring.NORM_AROUND):
            found += self.own_norm(names.after_feed_forward_norm, layout.after_feed_forward_norm)
        return found

    @property
    def places(self) -> LayerPlaces:
        return LayerPlaces(
            own=f"{self.config.names.layers}.{self.number}",
            checkpoint=self.checkpoint_layer,
            gguf=f"blk.{self.number}",
        )

    @property
    def checkpoint_layer(self) -> str:
        """What Hugging Face's checkpoint calls the layer."""
        return f"{self.layout.layers}.{self.layout.first_layer + self.number}"

    def name(self, own: str) -> str:
        return f"{self.config.names.layers}.{self.number}.{own}"

    def source(self, own: TensorName) -> TensorName:
        return own.below(self.checkpoint_layer, f"blk.{self.number}")

    def own_norm(self, name: str, source: TensorName) -> list[Parameter]:
        return self.norm(self.name(name), self.source(source), self.config.norm, self.config.hidden_size)

    def recurrence(self, config: Recurrence) -> list[Parameter]:
        own, source = self.name(self.config.names.recurrence), self.source(self.layout.recurrence)
        return recurrence_parameters(
            config,
            self.config.hidden_size,
            own=own,
            checkpoint=source.hugging_face,
            gguf=self.places.gguf,
            others=self.layout.others(source.hugging_face),
        )

    def attention(self) -> list[Parameter]:
        config, names, layout = self.config.attention, self.config.names, self.layout
        attended, key = config.query_heads * config.head_dim, config.key_value_heads * config.head_dim
        query = attended * (2 if config.output_gate else 1)
        hidden = self.config.hidden_size
        if config.latent is not None:
            values = config.query_heads * config.latent.value_dim
            output = self.linear(names.output, (layout.output,), (hidden,), values, bias=config.output_bias)
            return latent_attention(self.places, config, hidden, gguf_up=layout.gguf_latent_up) + output
        if len(layout.qkv) == 1:
            found = self.fused_qkv(config.query_heads, config.key_value_heads, config.head_dim)
        elif names.apart:
            found = [
                parameter
                for name, source, size in zip(names.apart, layout.qkv, (query, key, key), strict=True)
                for parameter in self.linear(name, (source,), (size,), hidden, bias=config.qkv_bias)
            ]
        else:
            found = self.linear(names.qkv, layout.qkv, (query, key, key), hidden, bias=config.qkv_bias, heads=True)
        if config.query_key_norm is not None:
            norm, scope = config.query_key_norm.norm, config.query_key_norm.scope
            for name, source, heads in (
                (names.query_norm, layout.query_norm, config.query_heads),
                (names.key_norm, layout.key_norm, config.key_value_heads),
            ):
                shape = {
                    NormScope.HEAD: (config.head_dim,),
                    NormScope.EACH_HEAD: (heads, config.head_dim),
                    NormScope.ALL_HEADS: (heads * config.head_dim,),
                }[scope]
                if "{head}" in source.hugging_face:
                    found.append(self.norm_of_each_head(name, source, heads, config.head_dim))
                else:
                    found += self.norm(self.name(name), self.source(source), norm, *shape)
        if config.sinks:
            found.append(
                self.vector(f"{self.name(names.sinks)}.weight", self.source(layout.sinks), (config.query_heads,))
            )
        return found + self.linear(names.output, (layout.output,), (hidden,), attended, bias=config.output_bias)

    def norm_of_each_head(self, name: str, source: TensorName, heads: int, head_dim: int) -> Parameter:
        """The weights of norms that a checkpoint has one by one, by the numbers of heads."""
        own = _added(self.source(source), "weight").hugging_face
        tensors = tuple(
            CheckpointTensor(name=own.replace("{head}", str(head)), shape=(head_dim,)) for head in range(heads)
        )
        return Parameter(
            name=f"{self.name(name)}.weight",
            role=ParameterRole.VECTOR,
            shape=(heads, head_dim),
            sources=tensors,
            operations=(Stack(axis=0),),
        )

    def fused_qkv(self, query_heads: int, key_value_heads: int, head_dim: int) -> list[Parameter]:
        """Queries, keys and values that a checkpoint has in one tensor."""
        rows, group = (query_heads + 2 * key_value_heads) * head_dim, query_heads // key_value_heads
        apart: tuple[Operation, ...] = ()
        in_gguf: tuple[Operation, ...] = ()
        found = []
        for kind in ("weight", *(("bias",) if self.config.attention.qkv_bias else ())):
            rest = (self.config.hidden_size,) if kind == "weight" else ()
            if self.layout.grouped_qkv:
                apart = (
                    Reshape(shape=(key_value_heads, group + 2, head_dim, *rest)),
                    Split(axis=1, sizes=(group, 1, 1)),
                    Flatten(axes=3),
                    Concatenate(axis=0),
                )
                if group == 1:
                    others = tuple(range(3, 3 + len(rest)))
                    in_gguf = (
                        Reshape(shape=(3, query_heads, head_dim, *rest)),
                        Permute(axes=(1, 0, 2, *others)),
                        Reshape(shape=(rows, *rest)),
                    )
            tensor = self.tensor(kind, self.layout.qkv[0], (rows, *rest), in_gguf=in_gguf)
            if self.layout.gguf_qkv:
                tensor = replace(tensor, gguf=self.joined_in_gguf(kind, query_heads, key_value_heads, head_dim, rest))
            found.append(self.made(self.config.names.qkv, kind, [tensor], (rows, *rest), apart))
        return found

    def joined_in_gguf(
        self, kind: str, query_heads: int, key_value_heads: int, head_dim: int, rest: tuple[int, ...]
    ) -> JoinedLayout:
        """The fused tensor of queries, keys and values that a GGUF file has apart."""
        tensors = []
        for place, name in enumerate(self.layout.gguf_qkv):
            heads = key_value_heads if place else query_heads
            shape = (heads * head_dim, *rest)
            undone: tuple[Operation, ...] = ()
            if place < 2 and self.layout.gguf_interleaves:
                undone = _without_interleaving(shape, heads)
            if self.layout.grouped_qkv:
                by_group = Reshape(shape=(key_value_heads, heads // key_value_heads, head_dim, *rest))
                undone = (*undone, by_group)
            tensors.append(TensorLayout(name=f"blk.{self.number}.{name}.{kind}", shape=shape, operations=undone))
        rows = (query_heads + 2 * key_value_heads) * head_dim
        joined: tuple[Operation, ...] = (Concatenate(axis=0),)
        if self.layout.grouped_qkv:
            joined = (Concatenate(axis=1), Reshape(shape=(rows, *rest)))
        return JoinedLayout(tensors=tuple(tensors), operations=joined)

    def feed_forward(self) -> list[Parameter]:
        config, names, layout = self.config.feed_forward, self.config.names, self.layout
        if isinstance(config, MixtureConfig):
            return mixture(self.places, config, self.config.hidden_size, layout.experts)
        inner, hidden, bias = config.intermediate_size, self.config.hidden_size, config.bias
        if not config.gated:
            found = self.linear(names.up, (layout.up,), (inner,), hidden, bias=bias)
        elif names.gate:
            found = [
                parameter
                for name, source in zip((names.gate, names.up), layout.gate_up, strict=True)
                for parameter in self.linear(name, (source,), (inner,), hidden, bias=bias)
            ]
        else:
            parts = (inner, inner) if len(layout.gate_up) == 2 else (2 * inner,)
            found = self.linear(names.gate_up, layout.gate_up, parts, hidden, bias=bias)
            if layout.gguf_gate_up:
                found = [self.apart_in_gguf(parameter, layout.gguf_gate_up) for parameter in found]
        return found + self.linear(names.down, (layout.down,), (hidden,), inner, bias=bias)

    def apart_in_gguf(self, parameter: Parameter, names: tuple[str, ...]) -> Parameter:
        """A fused weight or bias, whose equal parts a GGUF file has by these names."""
        (source,) = parameter.sources
        rows, *rest = source.shape
        kind = parameter.name.rpartition(".")[2]
        parts = tuple(
            TensorLayout(name=f"blk.{self.number}.{name}.{kind}", shape=(rows // len(names), *rest)) for name in names
        )
        joined = JoinedLayout(tensors=parts, operations=(Concatenate(axis=0),))
        return replace(parameter, sources=(replace(source, gguf=joined),))

    def linear(
        self,
        name: str,
        sources: tuple[TensorName, ...],
        rows: tuple[int, ...],
        columns: int,
        *,
        bias: bool,
        heads: bool = False,
    ) -> list[Parameter]:
        """Weight and bias of a module whose `rows` are those of its sources; with `heads`, of queries, keys and
        values."""
        found = []
        for kind in ("weight", *(("bias",) if bias else ())):
            rest = (columns,) if kind == "weight" else ()
            tensors = []
            for place, (source, size) in enumerate(zip(sources, rows, strict=True)):
                shape, undone = (size, *rest), tuple[Operation, ...]()
                if heads and place < 2 and self.layout.gguf_interleaves:
                    undone = _without_interleaving(shape, size // self.config.attention.head_dim)
                tensors.append(self.tensor(kind, source, shape, in_gguf=undone))
            fused: tuple[Operation, ...] = (Concatenate(axis=0),) if len(tensors) > 1 else ()
            found.append(self.made(name, kind, tensors, (sum(rows), *rest), fused))
        return found

    def tensor(
        self, kind: str, source: TensorName, shape: tuple[int, ...], *, in_gguf: tuple[Operation, ...]
    ) -> CheckpointTensor:
        """A tensor of a linear module, (out, in) or (out,)."""
        turned = (Permute(axes=(1, 0)),) if self.layout.transposed and kind == "weight" else ()
        name = _added(self.source(source), kind)
        gguf = TensorLayout(name=name.gguf, shape=shape, operations=(*in_gguf, *turned)) if name.gguf else None
        stored = shape[::-1] if turned else shape
        others = tuple(TensorLayout(name=other, shape=stored) for other in self.layout.others(name.hugging_face))
        return CheckpointTensor(name=name.hugging_face, shape=stored, gguf=gguf, others=others)

    def made(
        self,
        name: str,
        kind: str,
        tensors: list[CheckpointTensor],
        shape: tuple[int, ...],
        operations: tuple[Operation, ...],
    ) -> Parameter:
        turned = (Permute(axes=(1, 0)),) if self.layout.transposed and kind == "weight" else ()
        return Parameter(
            name=f"{self.name(name)}.{kind}",
            role=ParameterRole.LINEAR if kind == "weight" else ParameterRole.VECTOR,
            shape=shape,
            sources=tuple(tensors),
            operations=(*turned, *operations),
        )


def _added(name: TensorName, kind: str) -> TensorName:
    return TensorName(f"{name.hugging_face}.{kind}", f"{name.gguf}.{kind}" if name.gguf else "")


def _without_interleaving(shape: tuple[int, ...], heads: int) -> tuple[Operation, ...]:
    """Rows (head, pair, half) back to (head, half, pair)."""
    rows, *rest = shape
    axes = (0, 2, 1, *range(3, 3 + len(rest)))
    return (
        Reshape(shape=(heads, rows // heads // 2, 2, *rest)),
        Permute(axes=axes),
        Reshape(shape=shape),
    )
