"""What a Llama is, from a Hugging Face `config.json` of model type `llama` or `mistral`.

Field names are those of MLC-LLM's `model_config`; their defaults are those of transformers' `LlamaConfig` and
`MistralConfig` where a file leaves them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.compiler.models.config import (
    MAX_CONTEXT,
    ConfigReader,
    Overrides,
    read_document,
)
from mlcbuild.compiler.models.sizes import LibrarySizes
from mlcbuild.errors import StageError

MODEL_TYPES: tuple[str, ...] = ("llama", "mistral")
DEFAULT_PREFILL_CHUNK = 2048
DEFAULT_MAX_BATCH = 128
_MISTRAL_ATTENTION_SINK = 4  # MLC-LLM keeps the first four tokens of a sliding window


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched for longer contexts.

    `linear` divides every position by `factor`. `llama3` divides the low frequencies alone, blending between
    `original_max_position_embeddings / low_freq_factor` and `/ high_freq_factor` (Llama 3.1's rule); the
    last three fields are its own, 0 for `linear`.
    """

    rope_type: str
    factor: float
    low_freq_factor: float = 0.0
    high_freq_factor: float = 0.0
    original_max_position_embeddings: int = 0

    def __post_init__(self) -> None:
        if self.rope_type not in ("linear", "llama3"):
            raise ValueError(f"not a kind of RoPE scaling that is computed here: {self.rope_type!r}")
        if not self.factor >= 1:
            raise ValueError(f"a RoPE scaling factor is at least 1: {self.factor}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """The shape and constants of one model, with the sizes its library is made for.

    Sizes are in elements, contexts in tokens. `context_window_size` is -1 where a sliding window bounds the
    cache instead; `sliding_window_size` is -1 where there is none.
    """

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    position_embedding_base: float
    rope_scaling: RopeScaling | None
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    context_window_size: int
    prefill_chunk_size: int
    sliding_window_size: int = -1
    attention_sink_size: int = 0
    max_batch_size: int = DEFAULT_MAX_BATCH
    tensor_parallel_shards: int = 1

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise StageError(
                f'config.json: the field "num_key_value_heads" is {self.num_key_value_heads}; it has to '
                f'divide "num_attention_heads", which is {self.num_attention_heads}'
            )
        if self.head_dim % 2:
            raise StageError(
                f'config.json: the field "head_dim" is {self.head_dim}; rotary embeddings need an even number'
            )
        if self.sliding_window_size == -1 and self.context_window_size < 1:
            raise StageError(
                f"the context_window_size is {self.context_window_size}; only a model with a sliding window "
                "can do without one"
            )
        longest = self.sliding_window_size if self.sliding_window_size != -1 else self.context_window_size
        if not 1 <= self.prefill_chunk_size <= longest:
            name = "sliding_window_size" if self.sliding_window_size != -1 else "context_window_size"
            raise StageError(
                f"the prefill_chunk_size is {self.prefill_chunk_size}; it has to be from 1 to the {name}, "
                f"which is {longest}"
            )
        if self.sliding_window_size != -1 and self.attention_sink_size >= self.sliding_window_size:
            raise StageError(
                f"the attention_sink_size is {self.attention_sink_size}; it has to be smaller than the "
                f"sliding_window_size, which is {self.sliding_window_size}"
            )

    @property
    def sizes(self) -> LibrarySizes:
        return LibrarySizes(
            context_window_size=self.context_window_size,
            sliding_window_size=self.sliding_window_size,
            attention_sink_size=self.attention_sink_size,
            prefill_chunk_size=self.prefill_chunk_size,
            max_batch_size=self.max_batch_size,
            tensor_parallel_shards=self.tensor_parallel_shards,
        )

    @property
    def rope_scale(self) -> float:
        """What positions are multiplied by before the rotation."""
        scaling = self.rope_scaling
        return 1.0 / scaling.factor if scaling is not None and scaling.rope_type == "linear" else 1.0

    @property
    def tvm_rope_scaling(self) -> dict[str, object]:
        """The argument `rope_scaling` of `tvm.relax.frontend.nn.llm`; empty where frequencies are plain."""
        scaling = self.rope_scaling
        if scaling is None or scaling.rope_type == "linear":
            return {}
        return {
            "rope_type": scaling.rope_type,
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_position_embeddings,
        }

    @staticmethod
    def from_file(path: Path, *, overrides: Mapping[str, object] | None = None) -> LlamaConfig:
        """The configuration in a `config.json`, with overrides applied. Raises StageError naming the field
        that is missing or out of range, its value, and what is allowed."""
        return LlamaConfig.from_document(read_document(path), overrides=overrides, where=path.name)

    @staticmethod
    def from_document(
        document: Mapping[str, object],
        *,
        overrides: Mapping[str, object] | None = None,
        where: str = "config.json",
    ) -> LlamaConfig:
        """As `from_file`, for a parsed document that messages call `where`."""
        reader = ConfigReader(document, where)
        changed = Overrides.parse(overrides or {})
        model_type = reader.string("model_type")
        if model_type not in MODEL_TYPES:
            raise reader.fail("model_type", f'is "{model_type}"; this family reads {" and ".join(MODEL_TYPES)}')
        _reject_variants(reader)
        hidden_size = reader.integer("hidden_size", low=1, high=1 << 18)
        heads = reader.integer("num_attention_heads", low=1, high=1 << 12)
        if not reader.has("head_dim") and hidden_size % heads:
            raise reader.fail(
                "num_attention_heads",
                f'is {heads}; without a "head_dim" it has to divide "hidden_size", which is {hidden_size}',
            )
        positions = reader.integer("max_position_embeddings", low=1, high=MAX_CONTEXT)
        window = _sliding_window(reader, model_type, changed)
        context = _first(changed.context_window_size, -1 if window != -1 else positions)
        sink = 0 if window == -1 else _first(changed.attention_sink_size, _MISTRAL_ATTENTION_SINK)
        return LlamaConfig(
            model_type=model_type,
            hidden_size=hidden_size,
            intermediate_size=reader.integer("intermediate_size", low=1, high=1 << 20),
            num_hidden_layers=reader.integer("num_hidden_layers", low=1, high=1 << 12),
            num_attention_heads=heads,
            num_key_value_heads=reader.integer("num_key_value_heads", low=1, high=heads, default=heads),
            head_dim=reader.integer("head_dim", low=2, high=1 << 12, default=hidden_size // heads),
            vocab_size=reader.integer("vocab_size", low=1, high=1 << 22),
            rms_norm_eps=reader.number("rms_norm_eps", low=1e-20, high=0.1, default=1e-6),
            position_embedding_base=_rope_theta(reader),
            rope_scaling=_rope_scaling(reader, positions),
            tie_word_embeddings=reader.boolean("tie_word_embeddings", default=False),
            attention_bias=reader.boolean("attention_bias", default=False),
            mlp_bias=reader.boolean("mlp_bias", default=False),
            context_window_size=context,
            prefill_chunk_size=_first(
                changed.prefill_chunk_size, min(context if window == -1 else window, DEFAULT_PREFILL_CHUNK)
            ),
            sliding_window_size=window,
            attention_sink_size=sink,
            max_batch_size=_first(changed.max_batch_size, DEFAULT_MAX_BATCH),
            tensor_parallel_shards=_first(changed.tensor_parallel_shards, 1),
        )

    def model_config(self) -> dict[str, object]:
        """The object `model_config` of an `mlc-chat-config.json`."""
        document: dict[str, object] = {
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_attention_heads": self.num_attention_heads,
            "num_hidden_layers": self.num_hidden_layers,
            "rms_norm_eps": self.rms_norm_eps,
            "vocab_size": self.vocab_size,
            "tie_word_embeddings": self.tie_word_embeddings,
            "position_embedding_base": self.position_embedding_base,
            "rope_scaling": None,
            "context_window_size": self.context_window_size,
            "prefill_chunk_size": self.prefill_chunk_size,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "tensor_parallel_shards": self.tensor_parallel_shards,
            "pipeline_parallel_stages": 1,
            "max_batch_size": self.max_batch_size,
        }
        if self.rope_scaling is not None:
            linear = {"rope_type": self.rope_scaling.rope_type, "factor": self.rope_scaling.factor}
            document["rope_scaling"] = self.tvm_rope_scaling or linear
        if self.attention_bias:
            document["attention_bias"] = True
        if self.mlp_bias:
            document["mlp_bias"] = True
        if self.model_type == "mistral":
            document["sliding_window_size"] = self.sliding_window_size
            document["attention_sink_size"] = self.attention_sink_size
        return document


def _first(override: int | None, value: int) -> int:
    return value if override is None else override


def _reject_variants(reader: ConfigReader) -> None:
    """Raise StageError for fields whose value asks for arithmetic that the family does not have."""
    activation = reader.string("hidden_act", default="silu")
    if activation not in ("silu", "swish"):
        raise reader.fail("hidden_act", f'is "{activation}"; this family computes "silu"')
    rotated = reader.number("partial_rotary_factor", low=0.0, high=1.0, default=1.0)
    if rotated != 1.0:
        raise reader.fail("partial_rotary_factor", f"is {rotated:g}; this family rotates whole heads: 1")


def _sliding_window(reader: ConfigReader, model_type: str, changed: Overrides) -> int:
    if model_type != "mistral":
        if changed.sliding_window_size not in (None, -1):
            raise StageError(
                f"the override sliding_window_size is {changed.sliding_window_size}; "
                f'a model of type "{model_type}" has no sliding window'
            )
        return -1
    own = reader.integer("sliding_window", low=1, high=MAX_CONTEXT) if reader.has("sliding_window") else -1
    window = _first(changed.sliding_window_size, own)
    if window == 0:
        raise StageError("the override sliding_window_size is 0; it has to be -1 for none, or at least 1")
    return window


def _rope_theta(reader: ConfigReader) -> float:
    """transformers 5 moved the base into `rope_parameters`; files of both forms are about."""
    if reader.has("rope_parameters"):
        inner = reader.table("rope_parameters")
        if inner.has("rope_theta"):
            return inner.number("rope_theta", low=1.0, high=1e12)
    return reader.number("rope_theta", low=1.0, high=1e12, default=10000.0)


def _rope_scaling(reader: ConfigReader, positions: int) -> RopeScaling | None:
    name = "rope_parameters" if reader.has("rope_parameters") else "rope_scaling"
    if not reader.has(name):
        return None
    inner = reader.table(name)
    # "type" is the name that the key had before transformers 4.43.
    rope_type = inner.string("rope_type", default=inner.string("type", default="default"))
    if rope_type == "default":
        return None
    if rope_type == "linear":
        return RopeScaling(rope_type="linear", factor=inner.number("factor", low=1.0, high=1e6))
    if rope_type == "llama3":
        low = inner.number("low_freq_factor", low=1e-6, high=1e6)
        high = inner.number("high_freq_factor", low=1e-6, high=1e6)
        if not low < high:
            raise inner.fail("high_freq_factor", f'is {high:g}; it has to exceed "low_freq_factor", {low:g}')
        return RopeScaling(
            rope_type="llama3",
            factor=inner.number("factor", low=1.0, high=1e6),
            low_freq_factor=low,
            high_freq_factor=high,
            original_max_position_embeddings=inner.integer("original_max_position_embeddings", low=1, high=positions),
        )
    raise inner.fail("rope_type", f'is "{rope_type}"; RoPE is computed here plain ("default"), "linear" or "llama3"')
