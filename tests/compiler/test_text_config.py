"""The text parts of vision-language models, of folders that transformers writes: what they share with the models of
texts alone, and that the rest of a checkpoint is left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler.models.description import write_model
from mlcbuild.compiler.stages import gen_config
from mlcbuild.compiler.weights.checkpoint import Checkpoint, sources_of
from mlcbuild.compiler.weights.source import open_source
from tests.compiler import schemes
from tests.compiler.families import error_from
from tests.compiler.family_cases import CASES, TEXT_PARTS
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.running import random_model, tensors_of
from tests.compiler.tiny_models import ONE_TOKEN

_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
_VISION: dict[str, dict[str, Any]] = {
    "gemma3": {"model_type": "siglip_vision_model", **_SIZES},
    "mistral3": {"model_type": "pixtral", **_SIZES, "head_dim": 16},
    "qwen3_5": {"hidden_size": 32, "intermediate_size": 48, "depth": 1, "num_heads": 2, "out_hidden_size": 64},
}
_CASES = {**TEXT_PARTS, "qwen3_5": CASES["qwen3_5-vision"]}


def _config(name: str, **fields: object) -> dict[str, Any]:
    return {**_CASES[name].config, "vision_config": _VISION[name], **fields}


@pytest.mark.slow
@pytest.mark.parametrize("original", [True, False], ids=["language_model.model", "model.language_model"])
@pytest.mark.parametrize("name", TEXT_PARTS)
def test_the_checkpoint_of_the_whole_model_is_read(name: str, original: bool, tmp_path: Path) -> None:
    import transformers

    config = _config(name, tie_word_embeddings=name == "gemma3", mm_tokens_per_image=4)
    model = transformers.AutoModelForImageTextToText.from_config(transformers.AutoConfig.for_model(**config))
    model.save_pretrained(tmp_path, save_original_format=original)
    own = tensors_of(model)
    assert any("vision" in key for key in own)
    source = open_source(tmp_path)
    try:
        begins = {key.partition("embed_tokens")[0] for key in source.descriptions if "embed_tokens" in key}
        assert begins == {"language_model.model." if original else "model.language_model."}
        parameters = parameters_of(config)
        checkpoint = Checkpoint(source, parameters, where=str(tmp_path))
        for tensor in sources_of(parameters.parameters):
            theirs = tensor.name.replace("language_model.model.", "model.language_model.")
            theirs = theirs.replace("language_model.lm_head", "lm_head")
            np.testing.assert_array_equal(checkpoint.read(tensor.name).data, own[theirs])
    finally:
        source.close()


# The tests around this one say that numbers are the whole model's, and that the configuration is the text's.
@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mistral3", "gemma3", "qwen3_5"])
def test_logits_of_texts_are_those_of_the_whole_model(name: str, tmp_path: Path, kernel_store: Path) -> None:
    config = _config(name, tie_word_embeddings=name == "gemma3")
    model = random_model(config, with_vision=True)
    own = tensors_of(model)
    assert any("vis" in key for key in own)
    error_from(model, replace(_CASES[name], config=config), own, tmp_path, kernel_store=kernel_store)


@pytest.mark.parametrize("name", TEXT_PARTS)
def test_the_model_is_that_of_the_text_part(name: str) -> None:
    text = model_of(TEXT_PARTS[name].reference)
    assert model_of(_config(name)).configuration == text.configuration
    untied = model_of(_config(name, tie_word_embeddings=False))
    assert untied.chat_config["tie_word_embeddings"] is False


def test_tokens_are_those_of_the_whole_model(tmp_path: Path) -> None:
    config = _config("gemma3", eos_token_id=[1, 106], bos_token_id=2)
    config["text_config"] = {**config["text_config"], "eos_token_id": 9}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text(ONE_TOKEN)
    write_model(model_of(config), tmp_path / "model.json")
    gen_config.run(
        model=tmp_path / "model.json",
        config=tmp_path / "config.json",
        tokenizer=tmp_path / "tokenizer",
        chat_config=tmp_path / "mlc-chat-config.json",
        tokenizer_files=tmp_path / "files",
        scheme=schemes.scheme("q4f16_1"),
    )
    chat = json.loads((tmp_path / "mlc-chat-config.json").read_text())
    assert (chat["eos_token_id"], chat["bos_token_id"]) == ([1, 106], 2)
