"""A source's configuration and tokenizer."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from mlcbuild.compiler.models.gguf.numbers import shortest_decimal
from mlcbuild.errors import StageError
from tests.compiler.imported_config import imported
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.tiny_models import TINY, checkpoint, write_config, write_gguf


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A directory with the imported configuration and tokenizer of a tiny GGUF model."""
    imported(write_gguf(tmp_path / "m.gguf", checkpoint()), tmp_path)
    return tmp_path


def test_gguf_metadata_becomes_a_config_that_reads_the_same(tmp_path: Path) -> None:
    document, _ = imported(write_gguf(tmp_path / "m.gguf", checkpoint()), tmp_path)
    assert model_of(document) == model_of(TINY)
    assert parameters_of(document) == parameters_of(TINY)
    assert document["rms_norm_eps"] == 1e-05
    assert document["eos_token_id"] == 0


def test_a_window_in_a_gguf_makes_a_mistral(tmp_path: Path) -> None:
    key = "llama.attention.sliding_window"
    document, _ = imported(write_gguf(tmp_path / "m.gguf", checkpoint(), metadata={key: 48}), tmp_path)
    assert model_of(document) == model_of({**TINY, "model_type": "mistral", "sliding_window": 48})
    assert document["architectures"] == ["MistralForCausalLM"]
    document, _ = imported(write_gguf(tmp_path / "m.gguf", checkpoint(), metadata={key: 0}), tmp_path)
    assert model_of(document) == model_of(TINY)
    document, _ = imported(write_gguf(tmp_path / "m.gguf", checkpoint(), metadata={key: -3}), tmp_path)
    with pytest.raises(StageError, match='"sliding_window" is -3; it has to be from 1'):
        model_of(document)


def test_a_window_in_a_gguf_of_a_family_without_windows_is_refused(tmp_path: Path) -> None:
    config = {**TINY, "model_type": "qwen2"}
    metadata = {"qwen2.attention.sliding_window": 64}
    path = write_gguf(tmp_path / "m.gguf", checkpoint(config), config, pre="qwen2", metadata=metadata)
    with pytest.raises(StageError, match="may change what the model computes") as told:
        imported(path, tmp_path)
    assert "qwen2.attention.sliding_window is 64; it can be 0" in told.value.advice


@given(st.integers(0, 999_999), st.integers(-30, 30))
def test_a_decimal_of_six_digits_comes_back_from_a_ggufs_float32(digits: int, exponent: int) -> None:
    decimal = float(f"{digits}e{exponent}")
    assert shortest_decimal(float(np.float32(decimal))) == decimal


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_any_float32_of_a_gguf_keeps_its_bits(number: float) -> None:
    assert np.float32(shortest_decimal(number)) == np.float32(number)


def test_an_architecture_of_no_family_is_told(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", checkpoint(), architecture="llame")
    with pytest.raises(StageError, match=r'architecture "llame", which is not supported(.|\n)*did you mean "llama"'):
        imported(path, tmp_path)


def test_gguf_without_a_head_is_tied(tmp_path: Path) -> None:
    tensors = checkpoint()
    del tensors["lm_head.weight"]
    document, _ = imported(write_gguf(tmp_path / "m.gguf", tensors), tmp_path)
    assert document["tie_word_embeddings"] is True


def test_llama3_factors_in_a_gguf_become_its_rule(tmp_path: Path) -> None:
    import gguf

    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    # The published rule, frequency by frequency, as transformers' modeling_rope_utils has it.
    frequencies = 1.0 / 500000.0 ** (np.arange(0, 64, 2) / 64)
    wavelengths = 2 * np.pi / frequencies
    smooth = np.clip((8192 / wavelengths - 1.0) / (4.0 - 1.0), 0, 1)
    scaled = (1 - smooth) * frequencies / 32.0 + smooth * frequencies
    for factors, is_known in ((frequencies / scaled, True), (np.linspace(1, 32, 32), False)):
        writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
        for add, value in (
            (writer.add_block_count, 1),
            (writer.add_context_length, 131072),
            (writer.add_embedding_length, 128),
            (writer.add_feed_forward_length, 64),
            (writer.add_head_count, 2),
            (writer.add_layer_norm_rms_eps, 1e-5),
            (writer.add_rope_freq_base, 500000.0),
        ):
            add(value)
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(["a", "b", "ab"])
        writer.add_token_types([1, 1, 1])
        writer.add_token_merges(["a b"])
        writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))
        writer.add_tensor("token_embd.weight", np.ones((3, 128), np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        if is_known:
            assert imported(tmp_path / "m.gguf", tmp_path)[0]["rope_scaling"] == scaling
        else:
            with pytest.raises(StageError, match=r"not those of Llama 3\.1's rule"):
                imported(tmp_path / "m.gguf", tmp_path)


def test_rebuilt_tokenizer_merges_splits_digits_and_keeps_control_tokens_apart(tiny: Path) -> None:
    tokenizer = Tokenizer.from_file(str(tiny / "tokenizer" / "tokenizer.json"))
    assert tokenizer.encode("hello w12").tokens == ["hello", "Ġw", "1", "2"]
    assert tokenizer.encode("<|end|>he").tokens == ["<|end|>", "he"]
    for text in ("hello wörld", "日本 🙂\t\n  x", "1 234"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_hugging_face_directory_is_copied(tmp_path: Path, tiny: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    write_config(source / "config.json")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (source / name).write_bytes((tiny / "tokenizer" / name).read_bytes())
    (source / "README.md").write_text("not a part of the model")
    target = tmp_path / "made"
    target.mkdir()
    document, tokenizer = imported(source, target)
    assert document == dict(TINY)
    assert sorted(path.name for path in tokenizer.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]


def test_source_without_configuration_or_tokenizer_is_told(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"holds no config\.json"):
        imported(tmp_path, tmp_path)
    folder = tmp_path / "model"
    folder.mkdir()
    write_config(folder / "config.json")
    with pytest.raises(StageError, match=r"holds no tokenizer\.json"):
        imported(folder, tmp_path)
    with pytest.raises(StageError, match=r"model\.bin does not exist"):
        imported(tmp_path / "model.bin", tmp_path)


def test_truncated_gguf_is_told(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", checkpoint())
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StageError, match=r"m\.gguf is truncated: it ends at byte \d+ and should have \d+"):
        imported(path, tmp_path)
