"""The parameters of an encoder (`architecture.encoder`) by MLC-LLM's names, which are those of Hugging Face's BERT but
for queries, keys and values: these are one matrix."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.architecture.encoder import LAYERS, QKV, EncoderConfig
from mlcbuild.compiler.models.checkpoints.layout import TensorName
from mlcbuild.compiler.models.checkpoints.operations import Concatenate
from mlcbuild.compiler.models.checkpoints.parameters import CheckpointTensor, Parameter, ParameterList, TensorLayout
from mlcbuild.compiler.models.parameter_role import ParameterRole

_EMBEDDINGS = (
    TensorName("embeddings.word_embeddings", "token_embd"),
    TensorName("embeddings.position_embeddings", "position_embd"),
    TensorName("embeddings.token_type_embeddings", "token_types"),
)
_EMBEDDING_NORM = TensorName("embeddings.LayerNorm", "token_embd_norm")
_QKV = (
    TensorName("attention.self.query", "attn_q"),
    TensorName("attention.self.key", "attn_k"),
    TensorName("attention.self.value", "attn_v"),
)
_OUTPUT = TensorName("attention.output.dense", "attn_output")
_ATTENTION_NORM = TensorName("attention.output.LayerNorm", "attn_output_norm")
_UP = TensorName("intermediate.dense", "ffn_up")
_DOWN = TensorName("output.dense", "ffn_down")
_FEED_FORWARD_NORM = TensorName("output.LayerNorm", "layer_output_norm")
# What BERT's checkpoints of TensorFlow called a norm's weight and bias.
_NORM_PARTS = {"weight": "gamma", "bias": "beta"}


def encoder_parameters(config: EncoderConfig, *, prefixes: tuple[str, ...]) -> ParameterList:
    """Every parameter, in the order of the forward pass. `prefixes` are what names begin with in checkpoints of models
    that have heads, such as `bert.`; those heads, and the pooler, have no use here."""
    builder = _Builder(config=config, prefixes=prefixes)
    rows = (config.vocab_size, config.positions, config.token_types)
    found = [builder.table(name, count) for name, count in zip(_EMBEDDINGS, rows, strict=True)]
    found += builder.norm(_EMBEDDING_NORM)
    for number in range(config.num_layers):
        found += builder.layer(number)
    anything = "|".join(("", *(prefix.replace(".", r"\.") for prefix in prefixes)))
    ignored = (
        rf"({anything})pooler\.dense\.(weight|bias)",
        rf"({anything})embeddings\.(position_ids|token_type_ids)",
        r"(cls|lm_head)\..*",  # heads for the masked words and the next sentence
    )
    return ParameterList(parameters=tuple(found), ignored=ignored)


@dataclass(frozen=True, kw_only=True)
class _Builder:
    config: EncoderConfig
    prefixes: tuple[str, ...]

    def tensor(self, name: TensorName, kind: str, shape: tuple[int, ...]) -> CheckpointTensor:
        own = f"{name.hugging_face}.{kind}"
        names = [own]
        if name.hugging_face.endswith("LayerNorm"):
            names.append(f"{name.hugging_face}.{_NORM_PARTS[kind]}")
        others = [f"{prefix}{each}" for prefix in ("", *self.prefixes) for each in names]
        return CheckpointTensor(
            name=own,
            shape=shape,
            gguf=TensorLayout(name=f"{name.gguf}.{kind}", shape=shape),
            others=tuple(TensorLayout(name=other, shape=shape) for other in others if other != own),
        )

    def table(self, name: TensorName, rows: int) -> Parameter:
        shape = (rows, self.config.hidden_size)
        tensor = self.tensor(name, "weight", shape)
        return Parameter(name=tensor.name, role=ParameterRole.EMBEDDING, shape=shape, sources=(tensor,))

    def vector(self, name: TensorName, kind: str, size: int) -> Parameter:
        tensor = self.tensor(name, kind, (size,))
        return Parameter(name=tensor.name, role=ParameterRole.VECTOR, shape=(size,), sources=(tensor,))

    def norm(self, name: TensorName) -> list[Parameter]:
        return [self.vector(name, kind, self.config.hidden_size) for kind in ("weight", "bias")]

    def linear(self, name: TensorName, rows: int, columns: int) -> list[Parameter]:
        tensor = self.tensor(name, "weight", (rows, columns))
        matrix = Parameter(name=tensor.name, role=ParameterRole.LINEAR, shape=tensor.shape, sources=(tensor,))
        return [matrix, self.vector(name, "bias", rows)]

    def layer(self, number: int) -> list[Parameter]:
        hidden, inner = self.config.hidden_size, self.config.feed_forward.intermediate_size

        def own(name: TensorName) -> TensorName:
            return TensorName(f"{LAYERS}.{number}.{name.hugging_face}", f"blk.{number}.{name.gguf}")

        fused = [
            Parameter(
                name=f"{LAYERS}.{number}.{QKV}.{kind}",
                role=ParameterRole.LINEAR if kind == "weight" else ParameterRole.VECTOR,
                shape=(3 * hidden, *rest),
                sources=tuple(self.tensor(own(name), kind, (hidden, *rest)) for name in _QKV),
                operations=(Concatenate(axis=0),),
            )
            for kind, rest in (("weight", (hidden,)), ("bias", ()))
        ]
        return [
            *fused,
            *self.linear(own(_OUTPUT), hidden, hidden),
            *self.norm(own(_ATTENTION_NORM)),
            *self.linear(own(_UP), inner, hidden),
            *self.linear(own(_DOWN), hidden, inner),
            *self.norm(own(_FEED_FORWARD_NORM)),
        ]
