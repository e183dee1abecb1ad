"""Text is cut as llama.cpp cuts it, for each rule that a GGUF file may name."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from mlcbuild.compiler.tokenizer.byte_level import byte_level
from mlcbuild.compiler.tokenizer.cuts import CUTS
from mlcbuild.compiler.tokenizer.from_gguf import tokenizer_files
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from tests.compiler.llama_cpp import LlamaCppModel
from tests.compiler.texts import SAMPLES, random_texts
from tests.compiler.tiny_models import TINY, byte_level_letters, checkpoint, write_gguf


@pytest.fixture(scope="module")
def merged() -> tuple[list[str], list[str]]:
    """Tokens and merges of a vocabulary learned without any cut: its tokens go over every boundary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=3000, initial_alphabet=byte_level_letters(), show_progress=False, special_tokens=["<|end|>"]
    )
    tokenizer.train_from_iterator([*SAMPLES * 20, *random_texts(1500, seed=7)], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return tokens, [" ".join(pair) for pair in model["merges"]]


# Where llama.cpp's engine only comes near to the model's own expression.
NEAR = ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2", "granite-embed-multi-97m", "tekken")
WITHOUT_CLASSES_OF_CASE = ("tiny_aya", "cohere2moe")
WITHOUT_OTHER_SPACES = ("deepseek-coder",)


def _is_comparable(name: str, text: str) -> bool:
    categories = {unicodedata.category(letter) for letter in text if not letter.isascii()}
    if name in NEAR:  # it takes letters but a-z for capitals, and no marks for letters
        return not categories & {"Lu", "Ll", "Lt", "Mn", "Mc", "Me"}
    return name not in WITHOUT_OTHER_SPACES or "Zs" not in categories


IN_CI = ("deepseek-v3", "default", "gpt-4o", "llama-bpe", "tekken")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name if name in IN_CI else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in sorted(CUTS.keys() - set(WITHOUT_CLASSES_OF_CASE))
    ],
)
def test_text_is_cut_as_llama_cpp_cuts_it(tmp_path: Path, merged: tuple[list[str], list[str]], name: str) -> None:
    tokens, merges = merged
    config = {**TINY, "vocab_size": len(tokens)}
    vocabulary: dict[str, bool | int | float | str | Sequence[object]] = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] + [1] * (len(tokens) - 1),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.add_bos_token": False,
    }
    path = write_gguf(tmp_path / "m.gguf", checkpoint(config), config, pre=name, metadata=vocabulary)
    file = GGUFFile(path)
    tokenizer = Tokenizer.from_str(tokenizer_files(file, {})["tokenizer.json"])
    file.close()
    peer = LlamaCppModel(path)
    different = [
        text
        for text in (*SAMPLES, *random_texts(300))
        if _is_comparable(name, text) and tokenizer.encode(text, add_special_tokens=False).ids != peer.encode(text)
    ]
    peer.close()
    assert not different, (len(different), different[:3])


def test_names_of_one_rule_have_one_cut() -> None:
    """A rule that is there twice would be two rules after the next change."""
    assert len(set(CUTS.values())) == len({id(cut) for cut in CUTS.values()})


@pytest.mark.parametrize("name", sorted(CUTS))
def test_every_rule_is_one_that_the_library_takes(name: str) -> None:
    pieces = byte_level(CUTS[name]).pre_tokenize_str("Hello, world's 12345  tests\n")
    assert "".join(piece for piece, _ in pieces) == "Hello,Ġworld'sĠ12345ĠĠtestsĊ"


def test_words_begin_with_capitals_where_the_model_says_so() -> None:
    pieces = [piece for piece, _ in byte_level(CUTS["tiny_aya"]).pre_tokenize_str("HelloWORLD 1234567")]
    assert pieces == ["Hello", "WORLD", "Ġ", "1", "234", "567"]
