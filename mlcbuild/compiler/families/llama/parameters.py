"""The parameters of a Llama: MLC-LLM's names, with q, k and v fused, and gate and up."""

from __future__ import annotations

from mlcbuild.compiler.families.llama.family import LlamaConfig
from mlcbuild.compiler.models.parameters import CheckpointTensor, Parameter, ParameterList, Role

# Checkpoints of early transformers carry the rotary frequencies, which follow from the configuration.
_ROTARY = r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"


def parameters(config: LlamaConfig) -> ParameterList:
    """Every parameter, in the order of the forward pass. A tied model has no `lm_head`: its embedding
    serves."""
    hidden, head = config.hidden_size, config.head_dim
    found = [_matrix("model.embed_tokens", Role.EMBEDDING, config.vocab_size, hidden)]
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}"
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        query, key_value = config.num_attention_heads * head, config.num_key_value_heads * head
        found.append(_vector(f"{prefix}.input_layernorm", hidden))
        found += _linear(
            f"{attention}.qkv_proj",
            parts=(
                (f"{attention}.q_proj", query),
                (f"{attention}.k_proj", key_value),
                (f"{attention}.v_proj", key_value),
            ),
            columns=hidden,
            bias=config.attention_bias,
        )
        found += _linear(
            f"{attention}.o_proj",
            parts=((f"{attention}.o_proj", hidden),),
            columns=query,
            bias=config.attention_bias,
        )
        found.append(_vector(f"{prefix}.post_attention_layernorm", hidden))
        found += _linear(
            f"{mlp}.gate_up_proj",
            parts=(
                (f"{mlp}.gate_proj", config.intermediate_size),
                (f"{mlp}.up_proj", config.intermediate_size),
            ),
            columns=hidden,
            bias=config.mlp_bias,
        )
        found += _linear(
            f"{mlp}.down_proj",
            parts=((f"{mlp}.down_proj", hidden),),
            columns=config.intermediate_size,
            bias=config.mlp_bias,
        )
    found.append(_vector("model.norm", hidden))
    ignored = [_ROTARY]
    if config.tie_word_embeddings:
        ignored.append(r"lm_head\.weight")
    else:
        found.append(_matrix("lm_head", Role.FINAL_FC, config.vocab_size, hidden))
    return ParameterList(parameters=tuple(found), ignored=tuple(ignored))


def _matrix(module: str, role: Role, rows: int, columns: int) -> Parameter:
    name = f"{module}.weight"
    return Parameter(name=name, role=role, tensors=(CheckpointTensor(name=name, shape=(rows, columns)),))


def _vector(module: str, size: int) -> Parameter:
    name = f"{module}.weight"
    return Parameter(name=name, role=Role.VECTOR, tensors=(CheckpointTensor(name=name, shape=(size,)),))


def _linear(module: str, *, parts: tuple[tuple[str, int], ...], columns: int, bias: bool) -> list[Parameter]:
    weight = Parameter(
        name=f"{module}.weight",
        role=Role.LINEAR,
        tensors=tuple(CheckpointTensor(name=f"{part}.weight", shape=(rows, columns)) for part, rows in parts),
    )
    if not bias:
        return [weight]
    vector = Parameter(
        name=f"{module}.bias",
        role=Role.VECTOR,
        tensors=tuple(CheckpointTensor(name=f"{part}.bias", shape=(rows,)) for part, rows in parts),
    )
    return [weight, vector]
