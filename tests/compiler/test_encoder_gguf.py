"""GGUF files of encoders: llama.cpp loads a file with the names and shapes that the family reads, its metadata give the
configuration of the model, and hidden states and vectors are llama.cpp's. A RoBERTa's file is a BERT's, whose table of
positions begins at the first of a text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

from mlcbuild.compiler.models.gguf.architecture import gguf_architecture
from mlcbuild.compiler.tokenizer.from_gguf import tokenizer_files
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.errors import StageError
from mlcbuild.rules.families import families
from mlcbuild.runtime.embedding.pooling import Pooling
from tests.compiler import schemes
from tests.compiler.encoders import EncoderLibrary, reference_hidden
from tests.compiler.gguf_parity import read_file
from tests.compiler.llama_cpp import LlamaCppModel
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.running import random_model, tensors_of
from tests.compiler.tiny_models import Array

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


_BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"▁word{number}" for number in range(27))]
# llama.cpp looks GELU up in a table of float16 numbers, of the form with tanh.
_BOUND = 2e-3


def _random_tensors() -> dict[str, Array]:
    random = np.random.default_rng(0)
    tensors = {}
    for parameter in parameters_of(CONFIG).parameters:
        for source in parameter.sources:
            layout: Any = source.gguf
            numbers = random.standard_normal(layout.shape).astype(np.float32)
            if layout.name.endswith("norm.weight"):
                tensors[layout.name] = 1 + numbers / 10
            else:
                tensors[layout.name] = numbers / np.float32(10 if numbers.ndim == 1 else numbers.shape[-1] ** 0.5)
    return tensors


def _write(path: Path, *, tensors: Mapping[str, Array] | None = None, **changes: int | float | bool) -> Path:
    """A BERT with WordPiece; or one with Unigram as XLM-RoBERTa has it, of other `tensors`."""
    writer = gguf.GGUFWriter(path, "bert")
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    for key, value in {**METADATA, **changes}.items():
        kinds[type(value)](f"bert.{key}", value)
    if tensors is None:
        writer.add_tokenizer_model("bert")
        writer.add_token_list(_BERT_TOKENS)
        writer.add_token_types([gguf.TokenType.CONTROL] * 5 + [gguf.TokenType.NORMAL] * 27)
        special = (0, 1, 2, 3)
    else:
        writer.add_tokenizer_model("t5")
        writer.add_token_list(["<s>", "<pad>", "</s>", "<unk>", "▁", *"abcdefghijklmnopqrstuvwxyz", "▁ab"])
        writer.add_token_scores([0.0] * 4 + [-3.0] * 27 + [-2.0])
        control = gguf.TokenType.CONTROL
        writer.add_token_types([control, control, control, gguf.TokenType.UNKNOWN] + [gguf.TokenType.NORMAL] * 28)
        writer.add_add_space_prefix(True)
        writer.add_remove_extra_whitespaces(True)
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(True)
        special = (1, 3, 0, 2)
    writer.add_token_type_count(1 if tensors else 2)
    adders = (writer.add_pad_token_id, writer.add_unk_token_id, writer.add_bos_token_id, writer.add_eos_token_id)
    for number, add in zip(special, adders, strict=True):
        add(number)
    for name, numbers in (tensors or _random_tensors()).items():
        writer.add_tensor(name, np.ascontiguousarray(numbers))
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


def _library(path: Path, directory: Path, kernel_store: Path) -> EncoderLibrary:
    """The library that is built from a file, with its weights."""
    read = read_file(path)
    built = compile_library(read.document, "q0f32", CPU_TARGET, directory, kernel_store=kernel_store)
    return EncoderLibrary(built, schemes.stored(read.document, schemes.scheme("q0f32"), read.tensors))


def _hidden(library: EncoderLibrary, text: list[int]) -> Array:
    tokens = np.array([text], np.int32)
    return library.hidden(tokens, np.ones_like(tokens))[0]


def _embedded(path: Path, text: list[int], *, pooled: bool) -> Array:
    model = LlamaCppModel(path)
    found = model.embeddings(text, pooled=pooled)
    model.close()
    return found


def _error(found: Array, expected: Array) -> float:
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.slow
def test_hidden_states_and_vectors_are_those_of_llama_cpp(tmp_path: Path, kernel_store: Path) -> None:
    text = [2, *np.random.default_rng(7).integers(5, 32, 40).tolist(), 3]
    states = _write(tmp_path / "m.gguf", pooling_type=0)
    hidden = _hidden(_library(states, tmp_path, kernel_store), text)
    assert _error(hidden, _embedded(states, text, pooled=False)) < _BOUND
    for number in (1, 2, 3):
        path = _write(tmp_path / f"{number}.gguf", pooling_type=number)
        embedding = model_of(_document(path)).embedding
        assert embedding is not None
        pooling = Pooling(strategy=embedding.pooling_strategy.value, normalize=False)
        assert _error(pooling.vector(hidden), _embedded(path, text, pooled=True)) < _BOUND


def _roberta() -> tuple[Any, dict[str, Array]]:
    """A model of transformers, and the tensors that llama.cpp's converter makes of it: positions up to the padding
    token's number are left out."""
    config = {**CONFIG, "model_type": "xlm-roberta", "type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-12}
    del config["embedding_metadata"]
    model = random_model(config)
    tensors = tensors_of(model)
    found: dict[str, Array] = {}
    for parameter in parameters_of(config).parameters:
        for source in parameter.sources:
            layout: Any = source.gguf
            found[layout.name] = tensors[source.name]
    found["position_embd.weight"] = found["position_embd.weight"][2:]
    return model, found


def test_text_of_a_roberta_is_cut_as_llama_cpp_does(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.gguf", tensors=_roberta()[1], context_length=46)
    file = GGUFFile(path)
    try:
        tokenizer = Tokenizer.from_str(tokenizer_files(file, {})["tokenizer.json"])
    finally:
        file.close()
    other = LlamaCppModel(path)
    for text in ("ab cab", "  ab   c ", "", "hello world", "a é b", "abab"):
        assert tokenizer.encode(text).ids == other.encode(text, special=True), text
    other.close()


@pytest.mark.slow
def test_the_file_of_a_roberta_is_read_as_a_bert(tmp_path: Path, kernel_store: Path) -> None:
    model, tensors = _roberta()
    path = _write(tmp_path / "m.gguf", tensors=tensors, context_length=46, pooling_type=0)
    text = [0, *np.random.default_rng(7).integers(4, 32, 44).tolist(), 2]  # as long as there are positions
    hidden = _hidden(_library(path, tmp_path, kernel_store), text)
    tokens = np.array([text], np.int32)
    assert _error(hidden, reference_hidden(model, tokens, np.ones_like(tokens))[0]) < 1e-4
    assert _error(hidden, _embedded(path, text, pooled=False)) < _BOUND
