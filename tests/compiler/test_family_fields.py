"""Fields that single families have, and names of their parameters in packages, which are MLC-LLM's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler import json_values
from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.checkpoints.operations import UnitRows
from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.models.sizes import Overrides, library_sizes
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.families import BOUND
from tests.compiler.family_cases import CASES, TEXT_PARTS
from tests.compiler.parity import reference, sequences
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.running import Library, random_model
from tests.compiler.windowed_cases import WINDOWED

_ALL = CASES | WINDOWED | TEXT_PARTS


def _config(name: str, **changes: object) -> dict[str, Any]:
    return {**_ALL[name].config, **changes}


def _decoder(name: str, **changes: object) -> DecoderConfig:
    return json_values.decode(DecoderConfig, model_of(_config(name, **changes)).configuration, where="configuration")


def test_the_head_of_baichuan_2_is_made_of_unit_rows() -> None:
    def head(**changes: object) -> Parameter:
        found = parameters_of(_config("baichuan", **changes))
        return next(parameter for parameter in found.parameters if parameter.name == "lm_head.weight")

    assert head().operations == ()
    assert head(vocab_size=125696).operations == (UnitRows(),)


def test_a_baichuan_of_40_layers_has_alibi_by_whatever_name_it_has_its_length() -> None:
    assert _decoder("baichuan-alibi").rules.alibi
    assert _decoder("baichuan", num_hidden_layers=40).rules.alibi
    assert not _decoder("baichuan").rules.alibi
    assert model_of(_config("baichuan-alibi", model_max_length=77)).limits.max_position_embeddings == 77


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "llama4_text",
            [
                "model.layers.1.self_attn.q_proj.weight",
                "model.layers.1.feed_forward.router.router.weight",
                "model.layers.1.feed_forward.shared_expert.gate_up_proj.weight",
                "model.layers.0.feed_forward.gate_up_proj.weight",
            ],
        ),
        (
            "qwen",
            [
                "transformer.wte.weight",
                "transformer.h.0.attn.c_attn.bias",
                "transformer.h.0.attn.c_proj.weight",
                "transformer.h.0.mlp.gate_up_proj.weight",
                "transformer.h.0.mlp.c_proj.weight",
                "transformer.ln_f.weight",
                "lm_head.weight",
            ],
        ),
        (
            "chatglm",
            [
                "transformer.embedding.weight",
                "transformer.encoder.layers.0.self_attention.query_key_value.bias",
                "transformer.encoder.layers.0.self_attention.dense.weight",
                "transformer.encoder.layers.0.mlp.dense_h_to_4h.weight",
                "transformer.encoder.final_layernorm.weight",
                "transformer.output_layer.weight",
            ],
        ),
        ("gpt2", ["transformer.wte.weight", "lm_head.weight"]),
        ("gpt_bigcode", ["transformer.wte.weight", "lm_head.weight"]),
        ("starcoder2", ["model.embed_tokens.weight", "lm_head.weight"]),
        ("phi-msft", ["transformer.embd.weight", "transformer.h.0.mixer.Wqkv.weight", "lm_head.linear.bias"]),
        ("mixformer-sequential", ["transformer.embd.weight", "transformer.h.0.ln.bias", "lm_head.ln.weight"]),
        ("ministral3", ["model.layers.0.self_attn.qkv_proj.weight", "model.layers.0.mlp.gate_up_proj.weight"]),
        (
            "qwen3_5",
            [
                "model.layers.0.linear_attn.in_proj_qkv.weight",
                "model.layers.0.linear_attn.conv1d_weight",
                "model.layers.0.linear_attn.A_log",
                "model.layers.3.self_attn.c_attn.weight",
            ],
        ),
    ],
)
def test_parameters_have_mlcs_names(name: str, expected: list[str]) -> None:
    names = {parameter.name for parameter in parameters_of(_config(name)).parameters}
    assert set(expected) <= names


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama4_text", {"moe_layers": "all"}, '"moe_layers" has to be a list of numbers of layers'),
        ("llama4_text", {"no_rope_layers": [1, 0]}, '"no_rope_layers" has to be a list of 4 numbers'),
        (
            "llama4_text",
            {"attention_chunk_size": None, "layer_types": ["chunked_attention"] * 4},
            '"attention_chunk_size" is null; layers of the type "chunked_attention" need it',
        ),
        ("llama4_text", {"layer_types": ["sliding_attention"] * 4}, 'has the type "sliding_attention"; known:'),
        ("llama4", {"text_config": None}, '"text_config" is null; it has to be an object'),
        ("ministral3", {"rope_parameters": {"rope_type": "default"}}, '"llama_4_scaling_beta" is missing'),
        ("ministral3", {"text_config": {"model_type": "llama"}}, '"model_type" is "llama"; it has to be "mistral" or'),
        ("mistral3", {"text_config": None}, '"text_config" is null; it has to be an object'),
        ("mistral3", {"text_config": {"model_type": "mistral", "attention_bias": True}}, '"attention_bias" is true'),
        ("gemma3", {"text_config": {"model_type": "gemma2"}}, '"model_type" is "gemma2"; it has to be "gemma3_text"'),
        ("gemma3", {"text_config": None}, '"text_config" is null; it has to be an object'),
        ("gemma3_text", {"rope_scaling": {"type": "linear", "factor": 4.0}}, '"rope_scaling" has "type", which counts'),
        ("exaone", {"num_hidden_layers": 4}, '"num_hidden_layers" is 4, and "num_layers", which means the same, is 3'),
        ("qwen", {"scale_attn_weights": False}, '"scale_attn_weights" is false'),
        ("qwen", {"intermediate_size": 191}, '"intermediate_size" is 191; it is that of gate and up together'),
        ("chatglm", {"post_layer_norm": False}, '"post_layer_norm" is false'),
        ("chatglm", {"multi_query_group_num": 3}, '"num_key_value_heads" is missing; its default is 3'),
        ("mixformer-sequential", {"architecture": {"block_cls": "sequential"}}, '"architecture" is'),
        ("internlm", {"rotary": {"base": 10000, "type": "yarn"}}, '"rotary" has the type "yarn"; known'),
        ("mamba2", {"hidden_act": "gelu"}, '"hidden_act" is "gelu"; only "silu" is supported'),
        (
            "mamba2",
            {"num_heads": 4},
            '"num_heads" is 4, and "head_dim" 16; "expand" says that all heads have 128 elements',
        ),
        ("mamba2", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, '"rope_scaling" is {'),
        ("mamba2", {"n_groups": 3}, '"n_groups" is 3; it has to divide "num_heads", which is 8'),
        ("mamba2", {"time_step_limit": [0.1]}, '"time_step_limit" has to be a list of two numbers'),
        ("mamba2", {"time_step_limit": [0.5, 0.1]}, '"time_step_limit" is [0.5, 0.1]; steps are not negative'),
        ("qwen3_5", {"attn_output_gate": False}, '"attn_output_gate" is false; only true is supported'),
        (
            "qwen3_5",
            {"linear_num_key_heads": 3},
            '"linear_num_key_heads" is 3; it has to divide "linear_num_value_heads"',
        ),
        ("qwen3_5", {"layer_types": ["full_attention"] * 5}, '"layer_types" has "full_attention" alone'),
        ("qwen3_5", {"layer_types": ["mamba"] * 5}, '"layer_types" has to be "linear_attention" or "full_attention"'),
        ("qwen3_next", {"mlp_only_layers": [0]}, '"mlp_only_layers" is [0]; only [] is supported'),
        (
            "qwen3_5-vision",
            {"text_config": {"model_type": "qwen3"}},
            '"model_type" is "qwen3"; it has to be "qwen3_5_text"',
        ),
        ("exaone4-window", {"sliding_window_pattern": "LLLG"}, '"sliding_window_pattern" is "LLLG"; it has to be'),
    ],
)
def test_a_field_that_asks_for_what_is_not_computed_is_named(
    name: str, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(StageError) as raised:
        model_of(_config(name, **changes))
    assert message in str(raised.value)


def test_a_llama_4_of_which_all_layers_see_all_has_no_chunk() -> None:
    config = _decoder("llama4_text", attention_chunk_size=None, moe_layers=[], attn_temperature_tuning=0)
    assert config.rules.window == 0
    assert {config.of_layer(number).attention.temperature for number in range(4)} == {None}
    assert not any(name.endswith("experts") for name in config.kinds_of_layers)


@pytest.mark.parametrize("number", [True, 4])
def test_a_temperature_is_tuned_where_layers_do_not_rotate_and_the_field_may_be_a_number(number: object) -> None:
    config = _decoder("llama4_text", attn_temperature_tuning=number)
    tuned = [config.of_layer(layer).attention.temperature is not None for layer in range(4)]
    assert tuned == [False, False, False, True]


def test_a_norm_behind_a_rotation_that_changes_lengths_has_another_epsilon() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    norms = [_decoder("llama4_text", **fields).of_layer(0).attention for fields in ({}, {"rope_scaling": scaling})]
    plain, longer = (each.query_key_norm for each in norms)
    assert plain is not None
    assert longer is not None
    factor = 1.0 + 0.1 * np.log(4.0)
    assert longer.norm.epsilon == pytest.approx(plain.norm.epsilon / factor**2)
    assert norms[1].rotary.table is not None
    assert norms[1].rotary.table.attention_factor == 1.0


def test_a_context_is_no_longer_than_what_is_computed_as_the_models_code_does() -> None:
    limits = model_of(_config("qwen")).limits
    assert limits.max_position_embeddings == limits.longest == 128
    with pytest.raises(StageError, match="context_window_size is 256; texts of a model of this configuration can have"):
        library_sizes(limits, Overrides(context_window_size=256), model_type="qwen")
    free = model_of(_config("qwen", use_dynamic_ntk=False, use_logn_attn=False)).limits
    assert free.max_position_embeddings == 512
    assert library_sizes(free, Overrides(context_window_size=1024), model_type="qwen").context_window_size == 1024


def test_the_vocabulary_of_the_first_phis_is_a_multiple_as_their_code_makes_it() -> None:
    assert model_of(_config("phi-msft", vocab_size=300)).vocab_size == 320


def test_a_tied_head_that_is_apart_is_made_of_the_embedding() -> None:
    found = {parameter.name: parameter.sources for parameter in parameters_of(_config("gpt2")).parameters}
    assert found["lm_head.weight"] == found["transformer.wte.weight"]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_dynamic_scaling_is_that_of_a_text_as_long_as_the_context(tmp_path: Path, kernel_store: Path) -> None:
    config = _config("llama-dynamic", max_position_embeddings=20)
    model, (text, _) = random_model(config), sequences(320)
    state = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    weights = schemes.stored(config, schemes.scheme("q0f32"), state)
    path = compile_library(
        config,
        "q0f32",
        CPU_TARGET,
        tmp_path,
        kernel_store=kernel_store,
        overrides={"context_window_size": len(text)},
    )
    expected = reference(model, text)
    plain = reference(random_model(_config("llama-dynamic")), text)
    allowed = BOUND * float(np.abs(expected).max())
    assert np.abs(plain - expected).max() > 100 * allowed
    library = Library.load(path, weights)
    library.add(0)
    np.testing.assert_allclose(library.prefill(0, text[:30]), expected[29], rtol=0, atol=allowed)
    for place in range(30, len(text)):
        np.testing.assert_allclose(library.decode(0, text[place]), expected[place], rtol=0, atol=allowed)


def test_steps_without_a_bound_are_read_in_each_form_that_files_have() -> None:
    bounds = [None, [0.0, float("inf")], [0.0, {"__float__": "Infinity"}], [0, float("inf")]]
    found = [model_of(_config("mamba2", time_step_limit=bound)).configuration for bound in bounds]
    assert all(each == found[0] for each in found)
