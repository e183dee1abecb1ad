"""A config.json is read whole or refused by field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.compiler.families.llama.family import LlamaConfig
from mlcbuild.compiler.models.families import read_config
from mlcbuild.errors import StageError
from tests.compiler.tiny_models import TINY


def config(overrides: Mapping[str, object] | None = None, **changes: object) -> LlamaConfig:
    return read_config({**TINY, **changes}, overrides=overrides)


def test_defaults_are_those_of_the_family() -> None:
    found = config(num_key_value_heads=None)
    assert found.num_key_value_heads == found.num_attention_heads
    assert found.head_dim == 16
    assert found.position_embedding_base == 10000.0
    assert found.context_window_size == 128
    assert found.prefill_chunk_size == 128
    assert config(max_position_embeddings=8192).prefill_chunk_size == 2048
    assert found.sliding_window_size == -1
    assert not found.attention_bias


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
        ("num_key_value_heads", 8, r'"num_key_value_heads" is 8; it has to be from 1 to 4'),
        ("head_dim", 15, r'"head_dim" is 15; rotary embeddings need an even number'),
        ("rms_norm_eps", 0, r'"rms_norm_eps" is 0'),
        ("rms_norm_eps", float("nan"), r'"rms_norm_eps" is nan'),
        ("rope_theta", -1.0, r'"rope_theta" is -1'),
        ("tie_word_embeddings", 1, r'"tie_word_embeddings" is 1; it has to be true or false'),
        ("hidden_act", "gelu", r'"hidden_act" is "gelu"; this family computes "silu"'),
        ("partial_rotary_factor", 0.5, r"this family rotates whole heads"),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}, r'"rope_type" is "yarn"; RoPE is computed here'),
        ("rope_scaling", {"rope_type": "linear"}, r'"rope_scaling": the field "factor" is missing'),
        ("rope_scaling", 3, r'"rope_scaling" is 3; it has to be an object'),
        ("model_type", "lama", r'"model_type" is "lama", which is not supported(.|\n)*did you mean "llama"'),
    ],
)
def test_missing_or_absurd_field_is_told_with_what_is_allowed(field: str, value: object, message: str) -> None:
    with pytest.raises(StageError, match=message):
        read_config({**TINY, field: value})


def test_linear_rope_scaling_divides_positions() -> None:
    found = config(rope_scaling={"type": "linear", "factor": 4.0})
    assert found.rope_scale == 0.25
    assert found.tvm_rope_scaling == {}


def test_llama3_rope_scaling_is_read_in_both_forms() -> None:
    values = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
        "rope_type": "llama3",
    }
    older = config(rope_scaling=values, rope_theta=500000.0)
    newer = config(rope_parameters={**values, "rope_theta": 500000.0})
    assert older == newer
    assert older.tvm_rope_scaling == values
    assert older.rope_scale == 1.0


def test_plain_rope_parameters_carry_the_base() -> None:
    assert config(rope_parameters={"rope_type": "default", "rope_theta": 123.0}).position_embedding_base == 123.0


def test_mistral_window_stands_in_for_the_context() -> None:
    found = config(model_type="mistral", sliding_window=32)
    assert (found.sliding_window_size, found.context_window_size) == (32, -1)
    assert found.prefill_chunk_size == 32
    assert found.attention_sink_size == 4
    without = config(model_type="mistral", sliding_window=None)
    assert (without.sliding_window_size, without.context_window_size) == (-1, 128)


def test_overrides_replace_sizes() -> None:
    found = config({"context_window_size": 64, "prefill_chunk_size": 16, "max_batch_size": 2})
    assert (found.context_window_size, found.prefill_chunk_size, found.max_batch_size) == (64, 16, 2)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"context_window": 64}, 'unknown override "context_window"(.|\n)*did you mean "context_window_size"'),
        ({"context_window_size": "64"}, '"context_window_size" is "64"'),
        ({"context_window_size": -1}, "only a model with a sliding window"),
        ({"prefill_chunk_size": 256}, "prefill_chunk_size is 256; it has to be from 1 to the context_window_size"),
        ({"tensor_parallel_shards": 2}, '"tensor_parallel_shards" is 2; it has to be from 1 to 1'),
        ({"sliding_window_size": 16}, 'a model of type "llama" has no sliding window'),
    ],
)
def test_bad_override_is_told(overrides: Mapping[str, object], message: str) -> None:
    with pytest.raises(StageError, match=message):
        config(overrides)


def test_file_that_is_no_json_object_is_told(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{")
    with pytest.raises(StageError, match=r"config\.json is not valid JSON"):
        LlamaConfig.from_file(path)
    path.write_text("[1]")
    with pytest.raises(StageError, match="does not hold a JSON object"):
        LlamaConfig.from_file(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=3,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*TINY, "head_dim", "rope_theta", "rope_scaling", "rope_parameters", "sliding_window"]), JSON)
def test_any_value_in_any_field_is_read_or_refused_as_a_mistake_in_the_input(field: str, value: object) -> None:
    try:
        found = read_config({**TINY, field: value})
    except StageError:
        return
    json.dumps(found.model_config())
