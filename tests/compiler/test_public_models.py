"""Real configuration files: each is read, or refused with a message, and gives the sizes that the model has."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.compiler.models.description import ModelDescription, write_model
from mlcbuild.compiler.models.resolving import resolve
from mlcbuild.compiler.stages import gen_config
from mlcbuild.errors import StageError
from mlcbuild.rules.checkpoint_formats import formats
from mlcbuild.rules.families import families
from tests.compiler import schemes
from tests.compiler.public_models import PublicModel, counted, public_models
from tests.compiler.tiny_models import ONE_TOKEN

MODELS = public_models()
BUILT = {name: model for name, model in MODELS.items() if model.is_built}
REFUSED = {name: model for name, model in MODELS.items() if model.refused}
WINDOWED = ("starcoder2", "mistral", "phi3", "mixtral", "phimoe", "ministral3")
"""The types of models all of whose layers have the window that `sliding_window` says."""
_LEFT_OUT = {"gemma3_text": {"max_position_embeddings": 131072, "vocab_size": 262208}}
"""Defaults of transformers for fields that published files leave out."""
_CONTEXT = ("max_position_embeddings", "n_positions", "seq_length")


def test_there_are_forty_and_each_says_where_it_was_seen() -> None:
    assert len(BUILT) >= 40
    assert all(model.source for model in MODELS.values())
    found = {model.config["model_type"] for model in BUILT.values()}
    # No whole file was found of these, nor one of Ministral 8B that has its type; Qwen3.5's texts are parts of models.
    without = {"glm4", "granitemoeshared", "ministral", "mixformer-sequential", "roberta"}
    without |= {"qwen3_5_text", "qwen3_5_moe_text"}
    assert {name for family in families() for name in family.model_types} - found == without


@pytest.mark.parametrize("name", BUILT)
def test_sizes_are_those_of_the_model_and_an_engine_is_told_of_them(name: str, tmp_path: Path) -> None:
    config = BUILT[name].accepted
    model, parameters = resolve(config, families(), formats())
    # Latent attention has a matrix as it is and by heads; to torch, the correction of scores is no parameter.
    tensors = {
        tensor.name: math.prod(tensor.shape)
        for parameter in parameters.parameters
        if not parameter.name.endswith("e_score_correction_bias")
        for tensor in parameter.sources
    }
    assert sum(tensors.values()) == BUILT[name].parameters
    text = config.get("text_config", config)
    text = _LEFT_OUT.get(text["model_type"], {}) | text
    context = next((text[name] for name in _CONTEXT if name in text), None)
    if config["model_type"] == "xlm-roberta":  # whose first positions belong to no token
        context = config["max_position_embeddings"] - config["pad_token_id"] - 1
    assert context is not None or BUILT[name].partial
    assert context is None or model.limits.max_position_embeddings == context
    bounded = model.limits.max_position_embeddings != -1
    assert bounded == (model.kv_state_kind != "rnn_state")
    assert model.limits.sliding_window == _window(text)

    chat = _chat_config(model, config, tmp_path)
    vocabulary = text.get("vocab_size", text.get("padded_vocab_size"))
    assert chat["vocab_size"] == chat["model_config"]["vocab_size"] == vocabulary
    windowed = _window(text) not in (None, -1)
    assert chat["context_window_size"] == (-1 if windowed else model.limits.max_position_embeddings)
    assert chat["sliding_window_size"] == (_window(text) if windowed else -1)


def _window(config: dict[str, Any]) -> int | None:
    """The window of all layers, which has an end only if texts may be longer; None if no layer has it, or not all."""
    if config["model_type"] not in WINDOWED:
        return None
    told: int | None = config.get("sliding_window")
    return told if told is not None and told < config["max_position_embeddings"] else -1


def _chat_config(model: ModelDescription, config: dict[str, Any], directory: Path) -> dict[str, Any]:
    write_model(model, directory / "model.json")
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer").mkdir()
    (directory / "tokenizer" / "tokenizer.json").write_text(ONE_TOKEN)
    gen_config.run(
        model=directory / "model.json",
        config=directory / "config.json",
        tokenizer=directory / "tokenizer",
        chat_config=directory / "mlc-chat-config.json",
        tokenizer_files=directory / "files",
        scheme=schemes.scheme("q4f16_1"),
    )
    document: dict[str, Any] = json.loads((directory / "mlc-chat-config.json").read_text())
    return document


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_computed_is_refused_by_name(name: str) -> None:
    with pytest.raises(StageError, match=REFUSED[name].refused):
        resolve(REFUSED[name].config, families(), formats())


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BUILT)
def test_transformers_counts_the_same(name: str) -> None:
    model: PublicModel = BUILT[name]
    assert counted(model) == model.parameters
