"""The parameters of a decoder (`models.decoder`): MLC-LLM's names, with q, k and v fused, and gate and up.

Hugging Face has the same names but for what is fused, and llama.cpp its own, which are written here alone.
"""

from __future__ import annotations

from mlcbuild.compiler.models.decoder import LAYERS, AttentionConfig, DecoderConfig, FeedForwardConfig
from mlcbuild.compiler.models.operations import Concatenate, Operation, Permute, Reshape
from mlcbuild.compiler.models.parameters import (
    CheckpointTensor,
    GGUFSource,
    Parameter,
    ParameterList,
    ParameterRole,
    TiedTensor,
)

# Checkpoints of early transformers carry the rotary frequencies, which follow from the configuration; a GGUF file may
# carry factors, which its import reads.
_ROTARY = (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq", r"rope_freqs\.weight")


def decoder_parameters(config: DecoderConfig, *, gguf_interleaves: bool) -> ParameterList:
    """Every parameter, in the order of the forward pass. A tied model has no `lm_head`: its embedding serves.

    `gguf_interleaves`: llama.cpp's converter has interleaved the two halves of each head of q and k. It does so for the
    architectures whose rotary embedding turns neighbours there.
    """
    hidden = config.hidden_size
    found = [matrix("model.embed_tokens", ParameterRole.EMBEDDING, config.vocab_size, hidden, gguf="token_embd")]
    for number in range(config.num_layers):
        layer, block, own = f"{LAYERS}.{number}", f"blk.{number}", config.of_layer(number)
        found.append(vector(f"{layer}.input_layernorm", hidden, gguf=f"{block}.attn_norm"))
        found += attention(f"{layer}.self_attn", own.attention, hidden, gguf=block, interleaved=gguf_interleaves)
        found.append(vector(f"{layer}.post_attention_layernorm", hidden, gguf=f"{block}.ffn_norm"))
        found += feed_forward(f"{layer}.mlp", own.feed_forward, hidden, gguf=block)
    found.append(vector("model.norm", hidden, gguf="output_norm"))
    head = matrix("lm_head", ParameterRole.FINAL_FC, config.vocab_size, hidden, gguf="output")
    if not config.tie_word_embeddings:
        return ParameterList(parameters=(*found, head), ignored=_ROTARY)
    tied = TiedTensor(tensor=head.sources[0], equal_to=found[0].sources[0].name)
    return ParameterList(parameters=tuple(found), ignored=_ROTARY, tied=(tied,))


def attention(module: str, config: AttentionConfig, hidden: int, *, gguf: str, interleaved: bool) -> list[Parameter]:
    """The two projections of `models.attention.Attention`; `gguf` is the block's name in a GGUF file."""
    query, key_value = config.query_heads * config.head_dim, config.key_value_heads * config.head_dim
    query_heads, key_heads = (config.query_heads, config.key_value_heads) if interleaved else (0, 0)
    qkv = (
        _Part(f"{module}.q_proj", f"{gguf}.attn_q", query, heads=query_heads),
        _Part(f"{module}.k_proj", f"{gguf}.attn_k", key_value, heads=key_heads),
        _Part(f"{module}.v_proj", f"{gguf}.attn_v", key_value),
    )
    output = (_Part(f"{module}.o_proj", f"{gguf}.attn_output", hidden),)
    return [
        *_linear(f"{module}.qkv_proj", qkv, columns=hidden, bias=config.qkv_bias),
        *_linear(f"{module}.o_proj", output, columns=query, bias=config.output_bias),
    ]


def feed_forward(module: str, config: FeedForwardConfig, hidden: int, *, gguf: str) -> list[Parameter]:
    """The two projections of `models.feed_forward.GatedFeedForward`."""
    inner = config.intermediate_size
    gate_up = (
        _Part(f"{module}.gate_proj", f"{gguf}.ffn_gate", inner),
        _Part(f"{module}.up_proj", f"{gguf}.ffn_up", inner),
    )
    down = (_Part(f"{module}.down_proj", f"{gguf}.ffn_down", hidden),)
    return [
        *_linear(f"{module}.gate_up_proj", gate_up, columns=hidden, bias=config.bias),
        *_linear(f"{module}.down_proj", down, columns=inner, bias=config.bias),
    ]


def matrix(module: str, role: ParameterRole, rows: int, columns: int, *, gguf: str) -> Parameter:
    """The weight of a module, a matrix that a checkpoint has as it is."""
    return _as_it_is(f"{module}.weight", role, (rows, columns), gguf=f"{gguf}.weight")


def vector(module: str, size: int, *, gguf: str) -> Parameter:
    """The weight of a module such as a norm."""
    return _as_it_is(f"{module}.weight", ParameterRole.VECTOR, (size,), gguf=f"{gguf}.weight")


def _as_it_is(name: str, role: ParameterRole, shape: tuple[int, ...], *, gguf: str) -> Parameter:
    source = CheckpointTensor(name=name, shape=shape, gguf=GGUFSource(name=gguf, shape=shape))
    return Parameter(name=name, role=role, shape=shape, sources=(source,))


class _Part:
    """One of the projections that are fused: its rows, and how many interleaved heads they are in a GGUF file."""

    def __init__(self, name: str, gguf: str, rows: int, *, heads: int = 0) -> None:
        self.name = name
        self.gguf = gguf
        self.rows = rows
        self.heads = heads

    def tensor(self, kind: str, *columns: int) -> CheckpointTensor:
        shape = (self.rows, *columns)
        operations = _without_interleaving(shape, self.heads) if self.heads else ()
        gguf = GGUFSource(name=f"{self.gguf}.{kind}", shape=shape, operations=operations)
        return CheckpointTensor(name=f"{self.name}.{kind}", shape=shape, gguf=gguf)


def _linear(module: str, parts: tuple[_Part, ...], *, columns: int, bias: bool) -> list[Parameter]:
    rows = sum(part.rows for part in parts)
    fused: tuple[Operation, ...] = (Concatenate(axis=0),) if len(parts) > 1 else ()
    weights = tuple(part.tensor("weight", columns) for part in parts)
    found = [
        Parameter(
            name=f"{module}.weight", role=ParameterRole.LINEAR, shape=(rows, columns), sources=weights, operations=fused
        )
    ]
    if bias:
        biases = tuple(part.tensor("bias") for part in parts)
        found.append(
            Parameter(name=f"{module}.bias", role=ParameterRole.VECTOR, shape=(rows,), sources=biases, operations=fused)
        )
    return found


def _without_interleaving(shape: tuple[int, ...], heads: int) -> tuple[Operation, ...]:
    """Rows (head, pair, half) back to (head, half, pair)."""
    rows, *rest = shape
    axes = (0, 2, 1, *range(3, 3 + len(rest)))
    return (
        Reshape(shape=(heads, rows // heads // 2, 2, *rest)),
        Permute(axes=axes),
        Reshape(shape=shape),
    )
