"""The Qwen2 family: fields of config.json, GGUF files, and logits against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from mlcbuild.compiler.stages import import_config
from mlcbuild.errors import StageError
from mlcbuild.rules.families import families
from tests.compiler.parity import check_logits
from tests.compiler.resolving import model_of, parameters_of, readers
from tests.compiler.tiny_models import TINY_QWEN2, checkpoint, write_gguf

_BASE: dict[str, object] = {
    "model_type": "qwen2",
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "vocab_size": 320,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "use_sliding_window": False,
    "sliding_window": 16,
    "max_window_layers": 1,
}
_MODELS: dict[str, dict[str, object]] = {
    "grouped-64-tied": _BASE
    | {
        "hidden_size": 192,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
        "rope_theta": 1000000.0,
    },
    "grouped-32": _BASE | {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        pytest.param("grouped-64-tied", "q0f32", marks=pytest.mark.exhaustive),
        ("grouped-64-tied", "q4f16_1"),
        ("grouped-32", "q0f32"),
        ("grouped-32", "q0f16"),
        pytest.param("grouped-32", "q4f32_1", marks=pytest.mark.exhaustive),
    ],
)
def test_logits_equal_those_of_transformers(name: str, quantization: str, tmp_path: Path, kernel_store: Path) -> None:
    difference = check_logits(_MODELS[name], quantization, tmp_path, kernel_store=kernel_store)
    assert quantization != "q0f32" or difference < 1e-4


@pytest.mark.slow
def test_defaults_are_those_of_transformers() -> None:
    from transformers import Qwen2Config

    sizes = {
        name: value
        for name, value in TINY_QWEN2.items()
        if name not in ("num_key_value_heads", "rms_norm_eps", "tie_word_embeddings")
    }
    sizes |= {"hidden_size": 512, "num_attention_heads": 64}
    expected = Qwen2Config(**sizes)
    found = model_of(sizes).model_config
    for name in ("hidden_act", "num_key_value_heads", "rms_norm_eps", "tie_word_embeddings"):
        assert found[name] == getattr(expected, name)
    assert found["rope_theta"] == expected.rope_parameters["rope_theta"]
    assert set(expected.layer_types) == {"full_attention"}
    null = Qwen2Config(**sizes, num_key_value_heads=None)
    assert model_of({**sizes, "num_key_value_heads": None}).model_config["num_key_value_heads"] == 64
    assert null.num_key_value_heads == 64


def test_model_config_has_mlcs_fields_in_its_order() -> None:
    found = model_of(TINY_QWEN2).model_config
    assert list(found) == [
        *["hidden_act", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"],
        *["num_key_value_heads", "rms_norm_eps", "rope_theta", "vocab_size", "tie_word_embeddings"],
        *["context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "head_dim", "dtype", "max_batch_size"],
    ]
    scaled = model_of({**TINY_QWEN2, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}).model_config
    assert scaled["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}


def test_only_queries_keys_and_values_have_biases() -> None:
    parameters = parameters_of(TINY_QWEN2).parameters
    biases = {parameter.name: parameter for parameter in parameters if parameter.name.endswith(".bias")}
    assert list(biases) == [f"model.layers.{layer}.self_attn.c_attn.bias" for layer in range(2)]
    first = biases["model.layers.0.self_attn.c_attn.bias"]
    assert [tensor.name.split(".", 3)[3] for tensor in first.sources] == [
        "self_attn.q_proj.bias",
        "self_attn.k_proj.bias",
        "self_attn.v_proj.bias",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_sliding_window": 1}, '"use_sliding_window" is 1; it has to be true or false'),
        (
            {"layer_types": ["full_attention", "sliding_attention"]},
            '"layer_types" has the type "sliding_attention", but "use_sliding_window" is not true',
        ),
        ({"layer_types": ["full_attention"]}, '"layer_types" has to be a list of 2 types'),
        ({"layer_types": "full_attention"}, '"layer_types" has to be a list of 2 types'),
        ({"layer_types": ["full_attention", "chunked_attention"]}, 'has the type "chunked_attention"; known:'),
        ({"dual_chunk_attention_config": {"chunk_size": 64}}, '"dual_chunk_attention_config" is set'),
        ({"rope_scaling": {"rope_type": "proportional", "factor": 4.0}}, '"rope_type" is "proportional"'),
    ],
)
def test_a_field_that_asks_for_what_is_not_supported_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(StageError, match=message):
        model_of({**TINY_QWEN2, **changes})


def test_a_default_number_of_key_value_heads_that_does_not_fit_is_an_error() -> None:
    config = {name: value for name, value in TINY_QWEN2.items() if name != "num_key_value_heads"}
    with pytest.raises(StageError, match='"num_key_value_heads" is missing; its default is 32; it has to divide'):
        model_of(config)


@pytest.mark.parametrize(
    "changes",
    [
        {"use_sliding_window": False, "sliding_window": 64, "max_window_layers": 0},
        {"use_sliding_window": True},  # from layer 28 on
        {"use_sliding_window": True, "max_window_layers": 2},
        {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": None},
        {"use_sliding_window": True, "max_window_layers": 0, "layer_types": ["full_attention"] * 2},
    ],
)
def test_a_sliding_window_that_no_layer_has_changes_nothing(changes: dict[str, object]) -> None:
    assert model_of({**TINY_QWEN2, **changes}) == model_of(TINY_QWEN2)
    assert model_of(TINY_QWEN2).sizes.sliding_window_size == -1


def test_layers_from_a_number_on_have_a_window() -> None:
    model = model_of({**TINY_QWEN2, "use_sliding_window": True, "max_window_layers": 1, "sliding_window": 64})
    assert model.layers.kinds == ("full_attention", "sliding_attention")
    assert model.model_config["layer_types"] == ["full_attention", "sliding_attention"]
    assert (model.model_config["sliding_window"], model.sizes.sliding_window_size) == (64, -1)


@pytest.mark.parametrize("tied", [False, True])
def test_a_gguf_file_gives_the_configuration_of_the_checkpoint(tied: bool, tmp_path: Path) -> None:
    config: dict[str, Any] = {**TINY_QWEN2, "tie_word_embeddings": tied}
    path = write_gguf(tmp_path / "m.gguf", checkpoint(config), config, pre="qwen2")
    import_config.run(
        readers=readers(),
        source=path,
        config=tmp_path / "config.json",
        tokenizer=tmp_path / "tokenizer",
        vocabulary=tmp_path / "vocabulary.json",
        licenses=tmp_path / "licenses",
        families=families(),
    )
    document = json.loads((tmp_path / "config.json").read_text())
    assert (document["model_type"], document["architectures"]) == ("qwen2", ["Qwen2ForCausalLM"])
    assert model_of(document) == model_of(config)
    assert parameters_of(document) == parameters_of(config)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer" / "tokenizer.json"))
    assert tokenizer.pre_tokenizer is not None
    pieces = tokenizer.pre_tokenizer.pre_tokenize_str("!hello 12")
    assert [piece for piece, _ in pieces] == ["!hello", "Ġ", "1", "2"]
