"""A config.json is read whole or refused by field, whichever family it is of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.architecture.rotary import RotaryEmbedding
from mlcbuild.compiler.models.config import read_document
from mlcbuild.errors import StageError
from mlcbuild.rules.families import families
from tests.compiler.resolving import model_of
from tests.compiler.tiny_models import TINY
from tests.parity_packages import parity_package


def resolved(**changes: object) -> dict[str, Any]:
    """What a chat config says of the model, and what libraries without overrides are made for."""
    model = model_of({**TINY, **changes})
    sizes = {name: getattr(model.sizes, name) for name in model.sizes.__dataclass_fields__}
    return {**model.model_config, **sizes}


def rotary(**changes: object) -> RotaryEmbedding:
    from mlcbuild.compiler import json_values

    configuration = model_of({**TINY, **changes}).configuration
    return json_values.decode(DecoderConfig, configuration, where="configuration").attention.rotary


def test_defaults_are_those_of_the_family() -> None:
    found = resolved(num_key_value_heads=None)
    assert found["num_key_value_heads"] == found["num_attention_heads"]
    assert found["head_dim"] == 16
    assert found["position_embedding_base"] == 10000.0
    assert found["context_window_size"] == 128
    assert found["prefill_chunk_size"] == 128
    assert resolved(max_position_embeddings=8192)["prefill_chunk_size"] == 2048
    assert found["sliding_window_size"] == -1
    assert "attention_bias" not in found


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("hidden_size", None, r'"hidden_size" is missing; it has to be an integer from 1'),
        ("hidden_size", -64, r'"hidden_size" is -64; it has to be from 1'),
        ("hidden_size", 0, r'"hidden_size" is 0'),
        ("hidden_size", 2**40, r'"hidden_size" is 1099511627776'),
        ("hidden_size", "64", r'"hidden_size" is "64"; it has to be an integer'),
        ("hidden_size", 64.0, r'"hidden_size" is 64.0; it has to be an integer'),
        ("hidden_size", True, r'"hidden_size" is true'),
        ("num_hidden_layers", None, r'"num_hidden_layers" is missing'),
        ("vocab_size", [], r'"vocab_size" is \[\]'),
        ("num_attention_heads", 5, r'"num_attention_heads" is 5; .*has to divide "hidden_size", which is 64'),
        ("num_key_value_heads", 3, r'"num_key_value_heads" is 3; it has to divide "num_attention_heads", which is 4'),
        ("num_key_value_heads", 8, r'"num_key_value_heads" is 8; it has to divide "num_attention_heads", which is 4'),
        ("head_dim", 15, r'"head_dim" is 15; rotary embeddings need an even number'),
        ("rms_norm_eps", 0, r'"rms_norm_eps" is 0'),
        ("rms_norm_eps", float("nan"), r'"rms_norm_eps" is nan'),
        ("rope_theta", -1.0, r'"rope_theta" is -1'),
        ("tie_word_embeddings", 1, r'"tie_word_embeddings" is 1; it has to be true or false'),
        ("hidden_act", "mish", r'"hidden_act" is "mish"; known: gelu, .*silu'),
        ("partial_rotary_factor", 0.5, r"whole heads are rotated here"),
        (
            "rope_scaling",
            {"rope_type": "proportional", "factor": 4.0},
            r'"rope_type" is "proportional"; RoPE is computed here',
        ),
        ("rope_scaling", {"rope_type": "linear"}, r'"rope_scaling": the field "factor" is missing'),
        ("rope_scaling", 3, r'"rope_scaling" is 3; it has to be an object'),
        ("quantization_config", {"quant_method": "aqlm"}, r"quantized already \(aqlm\)(.|\n)*a library alone needs no"),
        ("quantization", {"group_size": 64, "bits": 4}, r'"quantization" says that .* already'),
        ("model_type", "lama", r'"model_type" is "lama", which is not supported(.|\n)*did you mean "llama"'),
    ],
)
def test_missing_or_absurd_field_is_told_with_what_is_allowed(field: str, value: object, message: str) -> None:
    with pytest.raises(StageError, match=message):
        model_of({**TINY, field: value})


def test_linear_rope_scaling_divides_positions() -> None:
    found = rotary(rope_scaling={"type": "linear", "factor": 4.0})
    assert found.position_scale == 0.25
    assert found.tvm_scaling == {}


def test_llama3_rope_scaling_is_read_in_both_forms() -> None:
    values = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
        "rope_type": "llama3",
    }
    older = rotary(rope_scaling=values, rope_theta=500000.0)
    newer = rotary(rope_parameters={**values, "rope_theta": 500000.0})
    assert older == newer
    assert older.tvm_scaling == values
    assert older.position_scale == 1.0


def test_plain_rope_parameters_carry_the_base() -> None:
    assert rotary(rope_parameters={"rope_type": "default", "rope_theta": 123.0}).base == 123.0


def test_mistral_window_stands_in_for_the_context() -> None:
    found = resolved(model_type="mistral", sliding_window=32)
    assert (found["sliding_window_size"], found["context_window_size"]) == (32, -1)
    assert found["prefill_chunk_size"] == 32
    assert found["attention_sink_size"] == 0
    without = resolved(model_type="mistral", sliding_window=None)
    assert (without["sliding_window_size"], without["context_window_size"]) == (-1, 128)


def test_a_window_that_no_text_reaches_is_none() -> None:
    assert resolved(model_type="mistral", sliding_window=127)["sliding_window_size"] == 127
    for window in (128, 262144):
        found = resolved(model_type="mistral", sliding_window=window)
        assert (found["sliding_window_size"], found["context_window_size"]) == (-1, 128)


@pytest.mark.parametrize("field", [{}, {"sliding_window": None}, {"sliding_window": 64}], ids=str)
def test_the_window_of_a_mistral_is_that_of_transformers(field: dict[str, object]) -> None:
    transformers = parity_package("transformers")
    sizes = {"hidden_size": 1024, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 16}
    document = {"model_type": "mistral", "vocab_size": 64, "max_position_embeddings": 8192, **sizes, **field}
    theirs = transformers.AutoConfig.for_model(**document)
    found = model_of(document)
    assert found.sizes.sliding_window_size == (theirs.sliding_window or -1)
    assert found.model_config["num_key_value_heads"] == theirs.num_key_value_heads


def test_file_that_is_no_json_object_is_told(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{")
    with pytest.raises(StageError, match=r"config\.json is not valid JSON"):
        read_document(path)
    path.write_text("[1]")
    with pytest.raises(StageError, match="does not hold a JSON object"):
        read_document(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=3,
)
OPTIONAL = (
    *("head_dim", "rope_theta", "rope_scaling", "rope_parameters", "sliding_window", "hidden_act"),
    *("quantization_config", "quantization", "original_max_position_embeddings", "partial_rotary_factor"),
    *("attention_bias", "mlp_bias", "is_causal", "per_layer_config", "layer_types", "use_sliding_window"),
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([name for family in families() for name in family.model_types]),
    st.sampled_from([*TINY, *OPTIONAL]),
    JSON,
)
def test_any_value_in_any_field_is_read_or_refused_as_a_mistake_in_the_input(
    model_type: str, field: str, value: object
) -> None:
    try:
        found = model_of({**TINY, "model_type": model_type, field: value})
    except StageError:
        return
    json.dumps(found.model_config, allow_nan=False)
    json.dumps(found.configuration, allow_nan=False)
