"""GGUF files of encoders: llama.cpp loads a file with the names and shapes that the family reads, and its metadata give
the configuration of the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from mlcbuild.compiler.models.gguf_architecture import gguf_architecture
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.errors import StageError
from mlcbuild.rules.families import families
from tests.compiler.llama_cpp import LlamaCppModel
from tests.compiler.resolving import model_of, parameters_of

CONFIG: Mapping[str, Any] = {
    "model_type": "bert",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 32,
    "max_position_embeddings": 48,
    "embedding_metadata": {"pooling_strategy": "mean"},
}
METADATA: Mapping[str, int | float | bool] = {
    "block_count": 3,
    "context_length": 48,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.layer_norm_epsilon": 1e-12,
    "attention.causal": False,
    "pooling_type": 1,
}


def _write(path: Path, **changes: int | float | bool) -> Path:
    writer = gguf.GGUFWriter(path, "bert")
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    for key, value in {**METADATA, **changes}.items():
        kinds[type(value)](f"bert.{key}", value)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"▁word{number}" for number in range(27))]
    writer.add_tokenizer_model("bert")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 5 + [gguf.TokenType.NORMAL] * 27)
    writer.add_token_type_count(2)
    for number, add in enumerate((writer.add_pad_token_id, writer.add_unk_token_id, writer.add_bos_token_id)):
        add(number)
    writer.add_eos_token_id(3)
    for parameter in parameters_of(CONFIG).parameters:
        for source in parameter.sources:
            layout: Any = source.gguf
            writer.add_tensor(layout.name, np.zeros(layout.shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _document(path: Path) -> dict[str, object]:
    file = GGUFFile(path)
    try:
        return gguf_architecture(file, families()).config(file)
    finally:
        file.close()


@pytest.mark.parametrize(("number", "strategy"), [(1, "mean"), (2, "cls"), (3, "last"), (0, "cls")])
def test_a_file_that_llama_cpp_loads_gives_the_models_configuration(tmp_path: Path, number: int, strategy: str) -> None:
    path = _write(tmp_path / "m.gguf", pooling_type=number)
    document = _document(path)
    assert parameters_of(document) == parameters_of(CONFIG)
    found, wanted = model_of(document), model_of(CONFIG)
    assert found.configuration == wanted.configuration
    assert found.embedding is not None
    assert found.embedding.pooling_strategy.value == strategy
    LlamaCppModel(path).close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention.causal": True}, '"bert.attention.causal" is not false'),
        ({"pooling_type": 4}, '"bert.pooling_type" is 4'),
        ({"attention.max_alibi_bias": 8.0}, "metadata that may change what the model computes"),
    ],
)
def test_what_is_not_computed_is_refused(tmp_path: Path, changes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(StageError, match=message):
        _document(_write(tmp_path / "m.gguf", **changes))
