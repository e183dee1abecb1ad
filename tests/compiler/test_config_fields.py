"""Every field of a config.json that changes what transformers computes is read, or refused by name."""

from __future__ import annotations

import copy
import functools
import importlib
import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.compiler import json_values
from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.errors import StageError
from tests.compiler.family_cases import CASES
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.tiny_models import TINY, Array
from tests.compiler.windowed_cases import WINDOWED
from tests.parity_packages import parity_package

TYPES = ("llama", "mistral", "qwen2")
ENCODERS = ("bert", "roberta", "xlm-roberta")
BASE = {**TINY, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}
BASES: Mapping[str, Mapping[str, Any]] = {
    **{name: case.config for name, case in (CASES | WINDOWED).items() if not case.reference and name not in TYPES},
    **{name: {**BASE, "model_type": name} for name in TYPES},
}

# Fields of other models, of older transformers, and of models with code of their own.
FIELDS: tuple[tuple[str, object], ...] = (
    ("attention_bias", True),
    ("mlp_bias", True),
    ("qkv_bias", True),
    ("use_qkv_bias", True),
    ("no_bias", True),
    ("head_dim", 32),
    ("num_key_value_heads", None),
    ("rms_norm_eps", 0.05),
    ("layer_norm_eps", 0.05),
    ("hidden_act", "gelu"),
    ("hidden_activation", "gelu"),
    ("rope_theta", 123.0),
    ("rotary_emb_base", 123.0),
    ("rope_scaling", {"type": "linear", "factor": 4.0}),
    ("rope_scaling", {"type": "dynamic", "factor": 4.0}),
    ("rope_scaling", {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}),
    ("rope_parameters", {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}),
    ("partial_rotary_factor", 0.5),
    ("rotary_pct", 0.5),
    ("rope_interleaved", True),
    ("no_rope_layers", [0, 0]),
    ("pretraining_tp", 2),
    ("query_pre_attn_scalar", 4),
    ("attention_multiplier", 0.5),
    ("softmax_scale", 0.5),
    ("logit_scale", 0.25),
    ("logits_scaling", 8.0),
    ("embedding_multiplier", 12.0),
    ("scale_emb", 12.0),
    ("scale_depth", 1.4),
    ("dim_model_base", 16),
    ("residual_multiplier", 0.22),
    ("attn_logit_softcapping", 5.0),
    ("final_logit_softcapping", 5.0),
    ("clip_qkv", 0.1),
    ("use_qk_norm", True),
    ("parallel_attn", True),
    ("is_causal", False),
    ("is_decoder", True),
    ("use_bidirectional_attention", True),
    ("alibi", True),
    ("attention_chunk_size", 4),
    ("num_experts", 4),
    ("num_local_experts", 4),
    ("tie_word_embeddings", True),
    ("per_layer_config", {"0": {"intermediate_size": 32}}),
    ("layer_types", ["full_attention", "full_attention"]),
    ("quantization_config", None),
    ("attention_dropout", 0.5),
    ("torch_dtype", "float16"),
)


@functools.cache
def _torch() -> Any:
    return parity_package("torch")


def transformers_model(document: dict[str, Any]) -> Any:
    transformers = parity_package("transformers")
    # Configurations change the dictionaries that they are given.
    values = {name: value for name, value in copy.deepcopy(document).items() if name != "model_type"}
    with warnings.catch_warnings():
        # It says so also to models that do not read the field.
        warnings.filterwarnings("ignore", message="`rope_scaling` is deprecated", category=FutureWarning)
        config = transformers.AutoConfig.for_model(document["model_type"], **values)
    # Tables that a model makes when it is built would be rounded to the dtype of the configuration.
    types = {"attn_implementation": "eager", "dtype": _torch().float32}
    if document["model_type"] in ENCODERS:
        return transformers.AutoModel.from_config(config, add_pooling_layer=False, **types).eval()
    return transformers.AutoModelForCausalLM.from_config(config, **types).eval()


@functools.cache
def _numbers(name: str, shape: tuple[int, ...]) -> Any:
    """Weights that depend on their name and shape alone: most models have some of those of the model before."""
    random = np.random.default_rng(sum(name.encode()))
    return _torch().from_numpy(random.standard_normal(shape).astype(np.float32) * np.float32(0.2))


@functools.cache
def _base_configuration(name: str) -> Mapping[str, object]:
    return model_of(BASES[name]).configuration


def logits(model: Any, tokens: int = 24) -> Array:
    """The logits of a text, with weights of `_numbers`; an encoder's hidden states."""
    torch = _torch()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_numbers(name, tuple(parameter.shape)))
        results = model(torch.arange(tokens)[None] * 7 % 300)
    found: Array = (results.logits if "logits" in results else results.last_hidden_state)[0].numpy()
    return found


@functools.cache
def base_logits(name: str, tokens: int = 24) -> Array:
    return logits(transformers_model(dict(BASES[name])), tokens)


@pytest.mark.parametrize(
    "base", [*TYPES, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in sorted(BASES.keys() - set(TYPES)))]
)
@pytest.mark.parametrize(
    ("field", "value"), FIELDS, ids=[f"{name}-{number}" for number, (name, _) in enumerate(FIELDS)]
)
def test_a_field_that_changes_logits_is_read_or_refused(base: str, field: str, value: object) -> None:
    if field == "layer_types":
        names = ("num_hidden_layers", "num_layers", "n_layer")
        value = ["full_attention"] * next(BASES[base][name] for name in names if name in BASES[base])
    document = {**BASES[base], field: value}
    # Some scaling changes texts alone that are longer than the context.
    positions = BASES[base].get("max_position_embeddings", 0)
    scales = isinstance(value, dict) and "dynamic" in value.values() and BASES[base]["model_type"] not in ENCODERS
    tokens = positions + 8 if scales and positions else 24
    try:
        reference = transformers_model(document)
        changes = not np.array_equal(logits(reference, tokens), base_logits(base, tokens))
    except Exception:  # transformers refuses with whatever the field leads to
        changes = True
    refused, found = "", None
    try:
        found = model_of(document).configuration
    except StageError as error:
        refused = str(error)
    if found is None:
        assert field in refused
    else:
        assert (found != _base_configuration(base)) == changes


@pytest.mark.parametrize("model_type", TYPES)
@pytest.mark.parametrize(
    "field",
    [
        *("num_key_value_heads", "head_dim", "rms_norm_eps", "hidden_act", "tie_word_embeddings", "rope_theta"),
        *("max_position_embeddings", "sliding_window"),
    ],
)
def test_a_field_that_is_missing_has_the_value_that_transformers_gives_it(model_type: str, field: str) -> None:
    document = {name: value for name, value in BASE.items() if name != field}
    document |= {"model_type": model_type, "num_attention_heads": 32, "hidden_size": 64}
    reference = transformers_model(document).config
    model = model_of(document)
    assert model.limits.max_position_embeddings == reference.max_position_embeddings
    window = reference.sliding_window if model_type == "mistral" else None
    if window is not None and window >= reference.max_position_embeddings:
        window = -1  # no text is as long
    assert model.limits.sliding_window == window
    configuration = model.configuration
    found = json_values.decode(DecoderConfig, configuration, where="configuration")
    assert found.attention.key_value_heads == reference.num_key_value_heads
    assert found.attention.head_dim == (reference.head_dim if hasattr(reference, "head_dim") else 2)
    assert found.norm.epsilon == reference.rms_norm_eps
    assert found.feed_forward.activation.value == reference.hidden_act
    assert found.tie_word_embeddings == reference.tie_word_embeddings
    assert found.attention.rotary.base == reference.rope_parameters["rope_theta"]


NUMBERS = st.sampled_from([1.0, 2.0, 4.0, 8.0])
PARAMETERS = st.fixed_dictionaries(
    {"factor": NUMBERS, "low_freq_factor": st.just(1.0), "high_freq_factor": st.just(4.0)},
    optional={
        "rope_type": st.sampled_from(["default", "linear", "dynamic", "llama3", "yarn"]),
        "type": st.sampled_from(["default", "linear", "dynamic", "llama3", "yarn"]),
        "original_max_position_embeddings": st.sampled_from([16, 64, 8192]),
        "rope_theta": st.sampled_from([100.0, 500000.0]),
    },
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(TYPES),
    st.fixed_dictionaries(
        {},
        optional={
            "rope_scaling": st.none() | PARAMETERS,
            "rope_parameters": st.none() | PARAMETERS,
            "rope_theta": st.sampled_from([100.0, 1e6]),
            "original_max_position_embeddings": st.sampled_from([32, 4096]),
        },
    ),
)
def test_rotations_are_those_of_transformers_or_refused(model_type: str, fields: dict[str, Any]) -> None:
    document = {**BASE, "model_type": model_type, **fields}
    try:
        configuration = model_of(document).configuration
    except StageError:
        return
    attention = json_values.decode(DecoderConfig, configuration, where="configuration").attention
    table = attention.rotary.in_model(attention.head_dim).table
    assert table is not None
    transformers = parity_package("transformers")
    values = {name: value for name, value in document.items() if name != "model_type"}
    config = transformers.AutoConfig.for_model(model_type, **values)
    module = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    expected = getattr(module, f"{model_type.capitalize()}RotaryEmbedding")(config)
    assert table.attention_factor == pytest.approx(expected.attention_scaling)
    np.testing.assert_allclose(table.frequencies, expected.inv_freq.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"type": "proportional", "factor": 2.0}, r'"type" is "proportional"; RoPE is computed here'),
        ({"type": "dynamic", "factor": 0.5}, r'"factor" is 0.5'),
        ({"type": "longrope", "short_factor": [1.0]}, r'"short_factor" has to be a list of 4 numbers'),
        ({"type": "su", "short_factor": [1.0] * 4, "long_factor": [0, 1, 1, 1]}, r'"long_factor": the field "0" is 0'),
        ({"full_attention": {"rope_type": "linear", "factor": 2.0}}, r'parameters of their own for "full_attention"'),
        ({"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}, r"whole heads are rotated"),
    ],
)
def test_a_scaling_that_is_not_computed_is_refused_by_the_name_in_the_file_with_advice(
    scaling: dict[str, object], message: str
) -> None:
    with pytest.raises(StageError) as raised:
        model_of({**BASE, "rope_scaling": scaling})
    assert re.search(message, str(raised.value))


def test_original_length_beyond_the_context_is_read() -> None:
    """As in copies of Llama 3.1 whose context is made shorter."""
    values = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_type": "llama3"}
    found = model_of({**BASE, "rope_scaling": {**values, "original_max_position_embeddings": 8192}})
    rotary = json_values.decode(DecoderConfig, found.configuration, where="c").attention.rotary
    assert rotary.scaling is not None
    assert rotary.scaling.original_max_position_embeddings == 8192


def test_a_size_of_heads_of_its_own_needs_no_division() -> None:
    """As in kanana-1.5-2.1b, which transformers 5 refuses: 24 heads of 128 elements, of 1,792."""
    document = {**BASE, "hidden_size": 1792, "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128}
    shapes = {parameter.name: parameter.shape for parameter in parameters_of(document).parameters}
    assert shapes["model.layers.0.self_attn.qkv_proj.weight"] == ((24 + 8 + 8) * 128, 1792)
    assert shapes["model.layers.0.self_attn.o_proj.weight"] == (1792, 24 * 128)
