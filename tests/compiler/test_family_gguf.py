"""GGUF files of the families: llama.cpp loads a file with the names and shapes that a family reads, and its metadata
give the configuration of the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from mlcbuild.compiler.models.gguf_architecture import gguf_architecture
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.rules.families import families
from tests.compiler.family_cases import CASES
from tests.compiler.llama_cpp import LlamaCppModel
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.tiny_models import byte_level_letters

_TURNED_HALF = {"rope.dimension_count": 8}
# By the case: the architecture, and metadata beside those that all decoders share.
ARCHITECTURES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "qwen3": ("qwen3", {}),
    "gemma": ("gemma", {}),
    "phi3": ("phi3", {"attention.sliding_window": 0, "rope.scaling.original_context_length": 4096}),
    "phi": ("phi2", {"attention.layer_norm_epsilon": 1e-5, **_TURNED_HALF}),
    "gpt_neox": (
        "gptneox",
        {"attention.layer_norm_epsilon": 1e-5, "use_parallel_residual": True, "rope.dimension_count": 4},
    ),
    "gpt2": ("gpt2", {"attention.layer_norm_epsilon": 1e-5}),
    "gpt_bigcode": ("starcoder", {"attention.layer_norm_epsilon": 1e-5, "attention.head_count_kv": 1}),
    "starcoder2": ("starcoder2", {"attention.layer_norm_epsilon": 1e-5}),
    "stablelm": (
        "stablelm",
        {"attention.layer_norm_epsilon": 1e-5, "use_parallel_residual": True, "rope.dimension_count": 4},
    ),
    "cohere": ("command-r", {"attention.layer_norm_epsilon": 1e-5, "logit_scale": 0.0625, "rope.freq_base": 500000.0}),
    "olmo": ("olmo", {"attention.layer_norm_epsilon": 1e-5}),
    "olmo-clipped": ("olmo", {"attention.layer_norm_epsilon": 1e-5, "attention.clamp_kqv": 0.5}),
    "olmo2": ("olmo2", {}),
    "granite": (
        "granite",
        {"attention.scale": 0.1, "embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 8.0},
    ),
    "nemotron": ("nemotron", {"attention.layer_norm_epsilon": 1e-5, **_TURNED_HALF}),
    "glm4": ("glm4", {"rope.dimension_count": 16}),
    "orion": ("orion", {"attention.layer_norm_epsilon": 1e-5}),
    "minicpm": (
        "minicpm",
        {"embedding_scale": 12.0, "residual_scale": 1.4 / 3**0.5, "logit_scale": 0.25},
    ),
    "smollm3": ("smollm3", {"rope.freq_base": 2000000.0}),
}


def _write(path: Path, name: str) -> None:
    config, (architecture, further) = CASES[name].config, ARCHITECTURES[name]
    model = model_of(config)
    attention = model.configuration["attention"]
    assert isinstance(attention, Mapping)
    writer = gguf.GGUFWriter(path, architecture)
    shared = {
        "block_count": model.layers.count,
        "context_length": model.limits.max_position_embeddings,
        "embedding_length": model.configuration["hidden_size"],
        "feed_forward_length": model.configuration["feed_forward"]["intermediate_size"],  # type: ignore[index]
        "attention.head_count": attention["query_heads"],
        "attention.head_count_kv": attention["key_value_heads"],
        "attention.key_length": attention["head_dim"],
        "attention.value_length": attention["head_dim"],
        "rope.dimension_count": attention["head_dim"],
        "rope.freq_base": 10000.0,
    }
    if "attention.layer_norm_epsilon" not in further:
        shared["attention.layer_norm_rms_epsilon"] = model.configuration["norm"]["epsilon"]  # type: ignore[index]
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    for key, value in {**shared, **further}.items():
        kinds[type(value)](f"{architecture}.{key}", value)
    letters = ["<pad>", "<s>", "</s>", *byte_level_letters()]
    tokens = letters + [f"<unused{number}>" for number in range(config["vocab_size"] - len(letters))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_merges(["a b"])
    for number, add in enumerate((writer.add_pad_token_id, writer.add_bos_token_id, writer.add_eos_token_id)):
        add(number)
    for parameter in parameters_of(config).parameters:
        for source in parameter.sources:
            assert source.gguf is not None
            writer.add_tensor(source.gguf.name, np.zeros(source.gguf.shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_file_that_llama_cpp_loads_gives_the_models_configuration(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    _write(path, name)
    file = GGUFFile(path)
    document = gguf_architecture(file, families()).config(file)
    file.close()
    expected = CASES[name].config
    assert document["model_type"] == expected["model_type"]
    assert parameters_of(document) == parameters_of(expected)
    found, wanted = model_of(document).configuration, model_of(expected).configuration
    for scale in ("residual_scale", "logit_scale"):  # of float32 numbers in a file
        assert found[scale] == pytest.approx(wanted[scale], rel=1e-6)
    assert {**found, "residual_scale": 0, "logit_scale": 0} == {**wanted, "residual_scale": 0, "logit_scale": 0}
    LlamaCppModel(path).close()


def test_every_architecture_of_a_decoder_is_tested() -> None:
    read = {name for family in families() if family.name not in ("llama", "qwen2") for name in family.gguf}
    assert read >= {architecture for architecture, _ in ARCHITECTURES.values()}
