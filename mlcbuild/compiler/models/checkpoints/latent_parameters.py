"""The parameters of latent attention by MLC-LLM's names, and what they are made of in checkpoints.

MLC-LLM has the matrix that makes keys and values of latent vectors twice: as it is, and by heads in two halves, which
queries and results are multiplied by instead.
"""

from __future__ import annotations

from mlcbuild.compiler.models.architecture.decoder import AttentionConfig
from mlcbuild.compiler.models.architecture.latent import LATENT_NAMES
from mlcbuild.compiler.models.checkpoints.mixture_parameters import LayerPlaces
from mlcbuild.compiler.models.checkpoints.operations import Concatenate, Operation, Permute, Reshape, Slice
from mlcbuild.compiler.models.checkpoints.parameters import (
    CheckpointTensor,
    GGUFSource,
    JoinedLayout,
    Parameter,
    TensorLayout,
)
from mlcbuild.compiler.models.parameter_role import ParameterRole

_IN_GGUF = {
    LATENT_NAMES.query: "attn_q",
    LATENT_NAMES.query_down: "attn_q_a",
    LATENT_NAMES.query_norm: "attn_q_a_norm",
    LATENT_NAMES.query_up: "attn_q_b",
    LATENT_NAMES.down: "attn_kv_a_mqa",
    LATENT_NAMES.norm: "attn_kv_a_norm",
}


def latent_attention(layer: LayerPlaces, config: AttentionConfig, hidden: int, *, gguf_up: str = "") -> list[Parameter]:
    """The parameters of `layers.latent_attention.LatentAttention` in a layer, but for its last product. `gguf_up` is
    what GGUF files of the architecture call the matrix `up`, where they have it whole."""
    latent, names = config.latent, LATENT_NAMES
    assert latent is not None
    heads, plain, value, rank = config.query_heads, latent.plain_dim, latent.value_dim, latent.rank
    queries, whole = heads * config.head_dim, (heads * (plain + value), rank)
    # Else llama.cpp has the matrix by heads, in two halves of which the first is turned, as MLC-LLM has it.
    by_heads = JoinedLayout(
        tensors=(
            TensorLayout(
                name=f"{layer.gguf}.attn_k_b.weight", shape=(heads, rank, plain), operations=(Permute(axes=(0, 2, 1)),)
            ),
            TensorLayout(name=f"{layer.gguf}.attn_v_b.weight", shape=(heads, value, rank)),
        ),
        operations=(Concatenate(axis=1), Reshape(shape=whole)),
    )

    def tensor(name: str, kind: str, *shape: int) -> CheckpointTensor:
        there: GGUFSource = by_heads
        in_gguf = _IN_GGUF.get(name, gguf_up)
        if in_gguf:
            there = TensorLayout(name=f"{layer.gguf}.{in_gguf}.{kind}", shape=shape)
        return CheckpointTensor(name=f"{layer.checkpoint}.{name}.{kind}", shape=shape, gguf=there)

    def one(name: str, kind: str, *shape: int) -> Parameter:
        role = ParameterRole.LINEAR if len(shape) == 2 else ParameterRole.VECTOR
        return Parameter(
            name=f"{layer.own}.{name}.{kind}", role=role, shape=shape, sources=(tensor(name, kind, *shape),)
        )

    def down(name: str, rows: int) -> list[Parameter]:
        bias = [one(name, "bias", rows)] if config.qkv_bias else []
        return [one(name, "weight", rows, hidden), *bias]

    found = []
    if latent.query_rank:
        found += down(names.query_down, latent.query_rank)
        found.append(one(names.query_norm, "weight", latent.query_rank))
        found.append(one(names.query_up, "weight", queries, latent.query_rank))
    else:
        found.append(one(names.query, "weight", queries, hidden))
    found += down(names.down, latent.kept_dim)
    found += [one(names.norm, "weight", rank), one(names.up, "weight", *whole)]

    def half(name: str, begin: int, size: int, *turned: Operation) -> Parameter:
        shape = (heads, rank, size) if turned else (heads, size, rank)
        part = Reshape(shape=(heads, plain + value, rank)), Slice(axis=1, begin=begin, end=begin + size)
        return Parameter(
            name=f"{layer.own}.{name}",
            role=ParameterRole.ABSORBED,
            shape=shape,
            sources=(tensor(names.up, "weight", *whole),),
            operations=(*part, *turned),
        )

    found.append(half(names.absorbed_keys, 0, plain, Permute(axes=(0, 2, 1))))
    found.append(half(names.absorbed_values, plain, value))
    return found
