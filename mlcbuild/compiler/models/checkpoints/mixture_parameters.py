"""The parameters of a mixture of experts: MLC-LLM's names, with the matrices of all experts in one, and gate and up.

Checkpoints of Hugging Face have a tensor for each expert and matrix, or all experts in one, as transformers 5 has them
in memory; llama.cpp has all experts in one, but gate and up apart.
"""

from __future__ import annotations

from typing import NamedTuple

from mlcbuild.compiler.models.architecture.mixture import MixtureConfig, SharedExperts
from mlcbuild.compiler.models.checkpoints.layout import ExpertNames
from mlcbuild.compiler.models.checkpoints.operations import Concatenate, Operation, Permute, Reshape, Slice, Stack
from mlcbuild.compiler.models.checkpoints.parameters import (
    CheckpointTensor,
    GGUFSource,
    JoinedLayout,
    Parameter,
    TensorLayout,
)
from mlcbuild.compiler.models.parameter_role import ParameterRole


class LayerPlaces(NamedTuple):
    """A layer by its name in packages, in Hugging Face's checkpoints and in GGUF files."""

    own: str
    checkpoint: str
    gguf: str


def mixture(layer: LayerPlaces, config: MixtureConfig, hidden: int, names: ExpertNames) -> list[Parameter]:
    """The parameters of `layers.experts.Mixture` in a layer."""
    found = _router(layer, config, hidden, names) + _experts(layer, config, hidden, names)
    if config.bias:
        found += _biases(layer, config, hidden, names)
    return found if config.shared is None else found + _shared(layer, config, config.shared, hidden, names)


def _router(layer: LayerPlaces, config: MixtureConfig, hidden: int, names: ExpertNames) -> list[Parameter]:
    def one(kind: str, shape: tuple[int, ...], role: ParameterRole, own: str, gguf_name: str) -> Parameter:
        source = CheckpointTensor(
            name=f"{layer.checkpoint}.{names.module}.{names.router}.{kind}",
            shape=shape,
            gguf=TensorLayout(name=f"{layer.gguf}.{gguf_name}", shape=shape),
            others=(TensorLayout(name=f"{layer.checkpoint}.{names.fused_router}.{kind}", shape=shape),),
        )
        return Parameter(name=f"{layer.own}.{own}", role=role, shape=shape, sources=(source,))

    matrix = (config.experts, hidden)
    router = config.names.router
    found = [one("weight", matrix, ParameterRole.ROUTER, f"{router}.weight", "ffn_gate_inp.weight")]
    if config.router.bias:
        found.append(one("bias", matrix[:1], ParameterRole.VECTOR, f"{router}.bias", "ffn_gate_inp.bias"))
    if config.router.correction_bias:
        kind, own = "e_score_correction_bias", config.names.correction_bias
        found.append(one(kind, matrix[:1], ParameterRole.FLOAT32, own, "exp_probs_b.bias"))
    return found


def _experts(layer: LayerPlaces, config: MixtureConfig, hidden: int, names: ExpertNames) -> list[Parameter]:
    inner, experts = config.intermediate_size, f"{layer.checkpoint}.{names.module}.experts"
    gate_up = (config.experts, 2 * inner, hidden)
    down = (config.experts, hidden, inner)

    def part(
        number: int,
        name: str,
        gguf_name: str,
        shape: tuple[int, int],
        fused: tuple[str, ...],
        whole: tuple[int, ...],
        *rows: Operation,
        in_blocks: tuple[Operation, ...] = (),
    ) -> CheckpointTensor:
        stacked = TensorLayout(
            name=f"{layer.gguf}.{gguf_name}.weight", shape=(config.experts, *shape), operations=_expert(number, shape)
        )
        others = [
            TensorLayout(name=f"{layer.checkpoint}.{other}", shape=whole, operations=_expert(number, shape, *rows))
            for other in fused
        ]
        if names.in_mxfp4:
            others += [
                TensorLayout(
                    name=f"{layer.checkpoint}.{other}_blocks",
                    shape=(whole[0], whole[2], whole[1]),
                    operations=_expert(number, shape, *in_blocks),
                )
                for other in fused
            ]
        own = f"{experts}.{number}.{name}.weight"
        return CheckpointTensor(name=own, shape=shape, gguf=stacked, others=tuple(others))

    def half(number: int, which: int) -> CheckpointTensor:
        name, gguf_name = ((names.gate, "ffn_gate_exps"), (names.up, "ffn_up_exps"))[which]
        if names.transposed:
            fused = (config.experts, hidden, 2 * inner)
            apart: tuple[Operation, ...] = (Slice(axis=2, begin=which * inner, end=(which + 1) * inner),)
            if names.interleaved:
                apart = Reshape(shape=(hidden, inner, 2)), Slice(axis=2, begin=which, end=which + 1)
            turned = Reshape(shape=(hidden, inner)), Permute(axes=(1, 0))
            blocks = Reshape(shape=(inner, 2, hidden)), Slice(axis=1, begin=which, end=which + 1)
            return part(
                number, name, gguf_name, (inner, hidden), names.fused_gate_up, fused, *apart, *turned, in_blocks=blocks
            )
        rows = Slice(axis=1, begin=which * inner, end=(which + 1) * inner)
        return part(number, name, gguf_name, (inner, hidden), names.fused_gate_up, gate_up, rows)

    def lower(number: int) -> CheckpointTensor:
        if names.transposed:
            fused = (config.experts, inner, hidden)
            turned = Reshape(shape=(inner, hidden)), Permute(axes=(1, 0))
            return part(number, names.down, "ffn_down_exps", (hidden, inner), names.fused_down, fused, *turned)
        return part(number, names.down, "ffn_down_exps", (hidden, inner), names.fused_down, down)

    numbers = range(config.experts)
    return [
        Parameter(
            name=f"{layer.own}.{config.names.gate_up}.weight",
            role=ParameterRole.EXPERTS,
            shape=gate_up,
            sources=tuple(half(number, which) for number in numbers for which in (0, 1)),
            operations=(Stack(axis=0), Reshape(shape=gate_up)),
        ),
        Parameter(
            name=f"{layer.own}.{config.names.down}.weight",
            role=ParameterRole.EXPERTS,
            shape=down,
            sources=tuple(lower(number) for number in numbers),
            operations=(Stack(axis=0),),
        ),
    ]


def _biases(layer: LayerPlaces, config: MixtureConfig, hidden: int, names: ExpertNames) -> list[Parameter]:
    def in_gguf(name: str, size: int) -> TensorLayout:
        return TensorLayout(name=f"{layer.gguf}.{name}.bias", shape=(config.experts, size))

    def one(own: str, source: str, size: int, there: GGUFSource, *operations: Operation) -> Parameter:
        shape = (config.experts, size)
        tensor = CheckpointTensor(name=f"{layer.checkpoint}.{source}_bias", shape=shape, gguf=there)
        name = f"{layer.own}.{own}.bias"
        return Parameter(name=name, role=ParameterRole.VECTOR, shape=shape, sources=(tensor,), operations=operations)

    inner = config.intermediate_size
    apart: tuple[Operation, ...] = ()
    joined: tuple[Operation, ...] = (Concatenate(axis=1),)
    if names.interleaved:
        joined = (Stack(axis=2), Reshape(shape=(config.experts, 2 * inner)))
        apart = (
            Reshape(shape=(config.experts, inner, 2)),
            Permute(axes=(0, 2, 1)),
            Reshape(shape=(config.experts, 2 * inner)),
        )
    halves = JoinedLayout(tensors=(in_gguf("ffn_gate_exps", inner), in_gguf("ffn_up_exps", inner)), operations=joined)
    return [
        one(config.names.gate_up, names.fused_gate_up[0], 2 * inner, halves, *apart),
        one(config.names.down, names.fused_down[0], hidden, in_gguf("ffn_down_exps", hidden)),
    ]


def _expert(number: int, shape: tuple[int, int], *rest: Operation) -> tuple[Operation, ...]:
    """One expert's matrix of a tensor that has all."""
    return (Slice(axis=0, begin=number, end=number + 1), *rest, Reshape(shape=shape))


def _shared(
    layer: LayerPlaces, config: MixtureConfig, shared: SharedExperts, hidden: int, names: ExpertNames
) -> list[Parameter]:
    inner, source = shared.intermediate_size, f"{layer.checkpoint}.{names.module}.{names.shared}"

    def tensor(name: str, gguf_name: str, *shape: int, fused: str, part: int, parts: int) -> CheckpointTensor:
        there = TensorLayout(name=f"{layer.gguf}.{gguf_name}.weight", shape=shape)
        rows = Slice(axis=0, begin=part * shape[0], end=(part + 1) * shape[0])
        joined = TensorLayout(
            name=f"{layer.checkpoint}.{fused}.weight", shape=(parts * shape[0], shape[1]), operations=(rows,)
        )
        others = (joined,) if fused else ()
        return CheckpointTensor(name=f"{source}.{name}.weight", shape=shape, gguf=there, others=others)

    upper, lower = names.fused_shared

    own = f"{layer.own}.{config.names.shared}"
    found = [
        Parameter(
            name=f"{own}.gate_up_proj.weight",
            role=ParameterRole.LINEAR,
            shape=(2 * inner, hidden),
            sources=(
                tensor("gate_proj", "ffn_gate_shexp", inner, hidden, fused=upper, part=0, parts=2),
                tensor("up_proj", "ffn_up_shexp", inner, hidden, fused=upper, part=1, parts=2),
            ),
            operations=(Concatenate(axis=0),),
        ),
        Parameter(
            name=f"{own}.down_proj.weight",
            role=ParameterRole.LINEAR,
            shape=(hidden, inner),
            sources=(tensor("down_proj", "ffn_down_shexp", hidden, inner, fused=lower, part=0, parts=1),),
        ),
    ]
    if shared.gated:
        shape = (1, hidden)
        there = TensorLayout(
            name=f"{layer.gguf}.ffn_gate_inp_shexp.weight", shape=shape[1:], operations=(Reshape(shape=shape),)
        )
        gate = CheckpointTensor(
            name=f"{layer.checkpoint}.{names.module}.{names.shared_gate}.weight", shape=shape, gguf=there
        )
        found.append(
            Parameter(
                name=f"{layer.own}.{config.names.shared_gate}.weight",
                role=ParameterRole.ROUTER,
                shape=shape,
                sources=(gate,),
            )
        )
    return found
