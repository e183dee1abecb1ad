"""OLMo 2: norms behind attention and feed-forward, and of all queries and all keys together.

Defaults are those of transformers' `Olmo2Config`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormScope, QueryKeyNorm, Wiring, read_decoder
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import FULL, SLIDING
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.windows import WINDOW, WINDOW_KEYS, WINDOW_PATTERN, check_one_base, window_document
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "position_embedding_base"),
    *("rope_scaling", "intermediate_size", "hidden_act", "num_hidden_layers", "rms_norm_eps", "tie_word_embeddings"),
    *("context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "pipeline_parallel_stages"),
    *("max_batch_size",),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(max_position_embeddings=2048, rms_norm_eps=1e-5)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    norms = QueryKeyNorm(norm=config.norm, scope=NormScope.ALL_HEADS)
    config = replace(config, wiring=Wiring.NORM_AFTER, attention=replace(config.attention, query_key_norm=norms))
    return decoder_model(reader, config, CheckpointLayout(), fields=_CHAT_CONFIG)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """An OLMo 3 has the architecture of an OLMo 2, and a window, without which none of its layers is another."""
    slides = file.integer(f"olmo2.{WINDOW}", 0) > 0
    model_type, class_name = ("olmo3", "Olmo3ForCausalLM") if slides else ("olmo2", "Olmo2ForCausalLM")
    document = decoder_document(
        file, architecture="olmo2", model_type=model_type, class_name=class_name, also_read=WINDOW_KEYS
    )
    if not slides:
        return document
    check_one_base(file, "olmo2")
    plain = {"rope_type": "default", "rope_theta": document["rope_theta"]}
    scaling = document.pop("rope_scaling", None)
    full = plain | scaling if isinstance(scaling, dict) else plain
    document["rope_parameters"] = {FULL: full, SLIDING: plain}
    return document | window_document(file, "olmo2", every=4)


FAMILY = Family(
    name="olmo2",
    models="OLMo 2",
    model_types=("olmo2",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "olmo2": GGUFArchitecture(
            config=_config_of_gguf, metadata=partial(decoder_metadata, keys=(WINDOW, WINDOW_PATTERN))
        )
    },
)
