"""A package generates what its model says, whatever the pieces it is fed in."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from mlcbuild.errors import UsageError
from mlcbuild.runtime.answer import FinishReason
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.generate import generate
from mlcbuild.runtime.sampling import Sampling
from tests.compiler.tiny_models import checkpoint

pytestmark = pytest.mark.slow

TOKENS = [int(token) for token in np.random.default_rng(4).integers(1, 260, 50)]


@pytest.fixture
def package(tiny_package: Path) -> Path:
    return tiny_package


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
        sampling = Sampling(temperature=1.0, seed=seed)
        return "".join(generate(package, "he", raw=True, max_tokens=16, sampling=sampling, threads=2))

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_context_bounds_the_answer_and_the_prompt(package: Path) -> None:
    sampling = Sampling(temperature=5.0)
    generation = generate(package, "a" * 60, raw=True, max_tokens=100, sampling=sampling, threads=2)
    list(generation)
    assert len(generation.tokens) == 4
    assert generation.context_is_full
    with pytest.raises(UsageError, match="prompt has 64 tokens, and the model's context is 64"):
        generate(package, "a" * 64, raw=True, threads=2)
    with pytest.raises(UsageError, match="number of new tokens is -1"):
        generate(package, "a", raw=True, max_tokens=-1, threads=2)


def test_what_a_sequence_has_of_a_text_already_is_kept(package: Path) -> None:
    """Texts that share beginnings of every length, one after another, as turns of a conversation that is edited."""
    random = np.random.default_rng(6)
    engine, fresh = Engine(package, threads=2), Engine(package, threads=2)
    engine.reset(capacity=64)
    text = TOKENS[:40]
    engine.prefill(text)
    for shared in (40, 39, 17, 16, 15, 30, 1, 0, 8, *(int(number) for number in random.integers(0, 40, 12))):
        shared = min(shared, engine.length)
        other = [(text[shared] + 1) % 300] if shared < len(text) else []
        text = [*text[:shared], *other, *(int(token) for token in random.integers(1, 300, 42 - shared))]
        kept = engine.keep(text)
        assert kept == shared
        assert engine.length == kept
        found = engine.prefill(text[kept:])
        fresh.reset(capacity=64)
        np.testing.assert_allclose(found, fresh.prefill(text), rtol=1e-4, atol=1e-4 * np.abs(found).max())
    assert engine.keep(text) == len(text) - 1, "a token is left to be computed"


def test_logits_of_every_token(package: Path) -> None:
    engine = Engine(package, threads=2)
    engine.reset(capacity=64)
    every = np.concatenate(list(engine.prefill_in_pieces(TOKENS, every_token=True)))
    assert every.shape == (len(TOKENS), 300)
    for place in (0, 15, 16, 49):
        engine.reset(capacity=64)
        last = engine.prefill(TOKENS[: place + 1])
        np.testing.assert_allclose(every[place], last, rtol=1e-4, atol=1e-4 * np.abs(last).max())


@pytest.mark.parametrize("every_logit", [False, True])
def test_logits_of_a_prompt_are_kept_and_nothing_has_to_be_generated(package: Path, every_logit: bool) -> None:
    generation = generate(package, "hello w" * 5, raw=True, max_tokens=0, every_logit=every_logit, threads=2)
    assert "".join(generation) == ""
    assert generation.prompt_logits is not None
    assert generation.prompt_logits.shape == ((len(generation.prompt), 300) if every_logit else (300,))
    longer = generate(package, "hello w" * 5, raw=True, max_tokens=1, threads=2)
    list(longer)
    last = generation.prompt_logits[-1] if every_logit else generation.prompt_logits
    assert longer.prompt_logits is not None
    np.testing.assert_allclose(last, longer.prompt_logits, rtol=1e-4, atol=1e-3)


def test_an_answer_ends_before_a_stop_string_that_spans_tokens(package: Path) -> None:
    whole = generate(package, "hello w", raw=True, max_tokens=24, threads=2)
    text = "".join(whole)
    stop = text[5:9]
    stopped = generate(package, "hello w", raw=True, max_tokens=24, stop_strings=("never", stop), threads=2)
    assert "".join(stopped) == text[: text.index(stop)] == stopped.answer.text
    assert stopped.answer.finish_reason is FinishReason.STOP


def test_a_generation_that_is_stopped_leaves_the_sequence_whole(package: Path) -> None:
    generation = generate(package, "hello w", raw=True, max_tokens=24, threads=2)
    engine = generation._engine
    for number, _ in enumerate(generation):
        if number == 3:
            generation.stop()
    assert generation.answer.finish_reason is None
    fed = [*generation.prompt, *generation.tokens]
    assert engine.length in (len(fed), len(fed) - 1)
    found = engine.decode(7) if engine.length == len(fed) else None
    if found is None:
        engine.decode(fed[-1])
        found = engine.decode(7)
    fresh = Engine(package, threads=2)
    fresh.reset(capacity=64)
    np.testing.assert_allclose(found, fresh.prefill([*fed, 7]), rtol=1e-4, atol=1e-3)


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
