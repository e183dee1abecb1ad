"""Which metadata of a GGUF file a decoder reads, and which it may leave out.

llama.cpp reads some metadata for every architecture, some for a few, and ignores the rest. A key below the
architecture's name may change what the model computes. So one that is neither read nor known to change nothing is
refused by its name.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile
    from mlcbuild.compiler.weights.gguf_parts import GGUFValue

# Read by `gguf.config`, by their names without the architecture's.
READ = frozenset(
    (
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_rms_epsilon",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scale_linear",
    )
)
# They change nothing that a decoder here computes.
WITHOUT_EFFECT: Mapping[str, str] = {
    "vocab_size": "the embedding has the number of its rows",
    "tensor_data_layout": "a note of the converter; llama.cpp does not read it",
    "pooling_type": "for embeddings of texts",
    "rope.scaling.finetuned": "a note of how the model was trained",
    "rope.scaling.original_context_length": "for other types of scaling than the file's (`gguf.rope`)",
    "rope.scaling.yarn_beta_fast": "as above",
    "rope.scaling.yarn_beta_slow": "as above",
    "rope.scaling.yarn_log_multiplier": "as above",
    "attention.layer_norm_epsilon": "for norms of another kind",
    "expert_used_count": "without experts, which are refused",
    "expert_feed_forward_length": "as above",
}
# Values with which a key changes nothing: what llama.cpp computes without it.
_NEUTRAL: Mapping[str, tuple[GGUFValue, ...]] = {
    "expert_count": (0,),
    "expert_shared_count": (0,),
    "nextn_predict_layers": (0,),
    "leading_dense_block_count": (0,),
    "use_parallel_residual": (False,),
    "logit_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.output_scale": (0.0, 1.0),
    "attention.sliding_window": (0,),
    "attention.temperature_scale": (0.0,),
    "rope.scaling.alpha": (0.0,),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scaling.yarn_ext_factor": (0.0, -1.0),
    "rope.scaling.yarn_attn_factor": (1.0, -1.0),
}


def check_keys(file: GGUFFile, architecture: str, *, head_dim: int, also_read: Collection[str] = ()) -> None:
    """Raise StageError for metadata below the architecture's name that may change what the model computes and is not
    read; all are told. `also_read` are names that the model's family reads itself."""
    known = {
        **_NEUTRAL,
        "attention.value_length": (head_dim,),
        "attention.scale": (0.0, _as_float32(1 / math.sqrt(head_dim))),
    }
    told = []
    for key, value in file.metadata.items():
        name = key.removeprefix(f"{architecture}.")
        if name == key or name in READ or name in also_read or name in WITHOUT_EFFECT:
            continue
        if name not in known:
            told.append(f"{key} is not known here")
        elif not any(_is_same(value, neutral) for neutral in known[name]):
            told.append(f"{key} is {_show(value)}; it can be {' or '.join(map(_show, known[name]))}")
    if told:
        raise StageError(
            f"{file.path} has metadata that may change what the model computes, and that is not supported",
            advice=(*told, "import the model from a Hugging Face directory, if there is one"),
        )


def _is_same(value: GGUFValue, neutral: GGUFValue) -> bool:
    if isinstance(neutral, bool) or isinstance(value, bool):
        return value is neutral
    if isinstance(value, int | float) and isinstance(neutral, int | float):
        return math.isclose(value, neutral, rel_tol=1e-6)
    return False


def _as_float32(number: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _show(value: GGUFValue) -> str:
    text = f"{value:g}" if isinstance(value, float) else repr(value).lower()
    return text if len(text) <= 60 else text[:57] + "…"
