"""A package generates what its model says, whatever the pieces it is fed in."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from mlcbuild.errors import UsageError
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.generate import generate
from tests.compiler.tiny_models import checkpoint, write_gguf
from tests.runtime.tiny_package import build_package

pytestmark = pytest.mark.slow

TOKENS = [int(token) for token in np.random.default_rng(4).integers(1, 260, 50)]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory, kernel_store: Path) -> Path:
    """Contexts of 64 tokens, fed in chunks of at most 16."""
    directory = tmp_path_factory.mktemp("tiny")
    source = write_gguf(directory / "tiny.gguf", checkpoint())
    overrides = {"context_window_size": 64, "prefill_chunk_size": 16}
    return build_package(source, directory, overrides=overrides, kernel_store=kernel_store)


def logits_by_formula(tokens: list[int]) -> np.ndarray:
    """The logits after the last token, by transformers in float32 on the same weights."""
    import torch
    import transformers

    from tests.compiler.tiny_models import TINY

    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY))
    model.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in checkpoint().items()})
    with torch.no_grad():
        logits: np.ndarray = model(torch.tensor([tokens])).logits[0, -1].numpy()
    return logits


def test_logits_are_those_of_transformers_on_the_same_weights(package: Path) -> None:
    engine = Engine(package, threads=2)
    engine.reset(capacity=64)
    expected = logits_by_formula(TOKENS)
    # float32 sums of up to 96 products of standard normals, in another order, through two layers.
    np.testing.assert_allclose(engine.prefill(TOKENS), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_prompt_in_chunks_and_token_by_token_gives_the_same_logits(package: Path) -> None:
    engine = Engine(package, threads=2)
    engine.reset(capacity=64)
    chunked = engine.prefill(TOKENS)
    engine.reset(capacity=64)
    engine.prefill(TOKENS[:1])
    single = [engine.decode(token) for token in TOKENS[1:]][-1]
    np.testing.assert_allclose(chunked, single, rtol=1e-4, atol=1e-4 * np.abs(single).max())


def test_sequences_do_not_remember_each_other(package: Path) -> None:
    engine = Engine(package, threads=2)
    first = engine.greedy_tokens(TOKENS[:10], 8)
    engine.greedy_tokens(TOKENS[10:30], 8)
    assert engine.greedy_tokens(TOKENS[:10], 8) == first


def test_generation_streams_its_tokens_text_and_counts_them(package: Path) -> None:
    generation = generate(package, "hello w", raw=True, max_tokens=12, threads=2)
    text = "".join(generation)
    tokens = Engine(package, threads=2).greedy_tokens(generation.prompt, 12)
    if 0 in tokens:  # the model's end of text
        tokens = tokens[: tokens.index(0)]
    assert generation.tokens == tokens
    from tokenizers import Tokenizer

    assert text == Tokenizer.from_file(str(package / "tokenizer.json")).decode(tokens)
    statistics = generation.statistics
    assert statistics.prompt_tokens == len(generation.prompt)
    assert statistics.decoded_tokens >= len(tokens) - 1
    assert statistics.decode_tokens_per_second > 0


@pytest.mark.parametrize("field", ["eos_token_id", "stop_token_ids"])
def test_each_token_that_ends_an_answer_ends_it(package: Path, tmp_path: Path, field: str) -> None:
    whole = generate(package, "hello w", raw=True, max_tokens=12, threads=2)
    list(whole)
    end = next(token for token in whole.tokens[2:] if token not in whole.tokens[:2])
    other = tmp_path / "other"
    shutil.copytree(package, other)
    config = json.loads((other / "mlc-chat-config.json").read_text())
    (config if field == "eos_token_id" else config["conv_template"])[field] = [299, end]
    (other / "mlc-chat-config.json").write_text(json.dumps(config))
    stopped = generate(other, "hello w", raw=True, max_tokens=12, threads=2)
    list(stopped)
    assert stopped.tokens == whole.tokens[: whole.tokens.index(end)]


def test_a_package_below_a_name_that_is_not_utf_8_answers_alike(package: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"p\xff")
    shutil.copytree(package, odd)
    here, there = (generate(each, "hello w", raw=True, max_tokens=6, threads=2) for each in (package, odd))
    assert "".join(there) == "".join(here)
    assert there.tokens == here.tokens


def test_an_error_in_the_prompt_is_told_before_weights_are_read(package: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(package, other)
    (other / "params_shard_0.bin").write_bytes(b"short")
    with pytest.raises(UsageError, match="prompt is not UTF-8"):
        generate(other, "a\udcff", raw=True, threads=2)


def test_sampled_text_follows_its_seed(package: Path) -> None:
    def text(seed: int) -> str:
        return "".join(generate(package, "he", raw=True, max_tokens=16, temperature=1.0, seed=seed, threads=2))

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_context_bounds_the_answer_and_the_prompt(package: Path) -> None:
    generation = generate(package, "a" * 60, raw=True, max_tokens=100, temperature=5.0, threads=2)
    list(generation)
    assert len(generation.tokens) == 4
    assert generation.context_is_full
    with pytest.raises(UsageError, match="prompt has 64 tokens, and the model's context is 64"):
        generate(package, "a" * 64, raw=True, threads=2)
    with pytest.raises(UsageError, match="number of new tokens is 0"):
        generate(package, "a", raw=True, max_tokens=0, threads=2)


def test_weights_of_another_quantization_are_refused(package: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(package, other)
    index = json.loads((other / "tensor-cache.json").read_text())
    index["records"][0]["records"][0]["name"] = "model.embed_tokens.q_weight"
    (other / "tensor-cache.json").write_text(json.dumps(index))
    with pytest.raises(UsageError, match=r"weights lack model\.embed_tokens\.weight"):
        Engine(other)


def test_directory_that_is_no_package_or_a_broken_one_is_told(package: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is no model package: it has no lib\.so"):
        Engine(tmp_path)
    other = tmp_path / "other"
    shutil.copytree(package, other)
    (other / "lib.so").write_bytes(b"not a library")
    with pytest.raises(UsageError, match=r"lib\.so cannot be loaded"):
        Engine(other)
    shutil.copyfile(package / "lib.so", other / "lib.so")
    (other / "params_shard_0.bin").write_bytes(b"short")
    with pytest.raises(UsageError, match=r"params_shard_0\.bin has 5 bytes and should have \d+"):
        Engine(other)
