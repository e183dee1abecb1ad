"""The `config.json` of a Mamba 2 from the metadata of a GGUF file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.config import RMS_NORM, special_tokens, vocabulary_size
from mlcbuild.compiler.models.gguf.keys import check_keys
from mlcbuild.compiler.models.gguf.numbers import shortest_decimal
from mlcbuild.compiler.models.gguf.recurrence import RECURRENCE_KEYS, recurrence_metadata, recurrence_sizes
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, Value, WrittenModel
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile


def config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp reads it: the convolution has a bias, the products have none, and steps have no bounds. Its
    converter writes 0 heads, and a context that means nothing."""
    check_keys(file, "mamba2", head_dim=1, also_read=RECURRENCE_KEYS)
    hidden, sizes = file.integer("mamba2.embedding_length"), recurrence_sizes(file, "mamba2")
    if hidden < 1:
        raise StageError(f"{file.path}: a model of {hidden} numbers cannot be")
    return {
        "architectures": ["Mamba2ForCausalLM"],
        "model_type": "mamba2",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "num_hidden_layers": file.integer("mamba2.block_count"),
        "expand": sizes.inner / hidden,
        "num_heads": sizes.heads,
        "head_dim": sizes.head_dim,
        "state_size": sizes.state_size,
        "n_groups": sizes.groups,
        "conv_kernel": sizes.convolution,
        "use_bias": False,
        "use_conv_bias": True,
        "vocab_size": vocabulary_size(file),
        "layer_norm_epsilon": shortest_decimal(file.number(f"mamba2.attention.{RMS_NORM}")),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        **special_tokens(file),
    }


def metadata_of_model(model: WrittenModel) -> GGUFMetadata:
    """With the context that llama.cpp's converter writes, and no heads."""
    config = model.configuration
    values: dict[str, Value] = {
        "block_count": config.num_layers,
        "context_length": 1 << 20,
        "embedding_length": config.hidden_size,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        f"attention.{RMS_NORM}": config.norm.epsilon,
        "vocab_size": config.vocab_size,
        **recurrence_metadata(config.recurrence),
    }
    return GGUFMetadata(values=values, factors={})
