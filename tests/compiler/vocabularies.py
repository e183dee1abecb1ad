"""Vocabularies as their libraries learn and write them, and the tokenizers that they become."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tokenizers import Tokenizer

from mlcbuild.compiler.tokenizer.converted import converted_files
from tests.compiler.texts import SAMPLES, random_texts
from tests.parity_packages import parity_package

CORPUS = [*SAMPLES * 5, *random_texts(400, seed=3), *("the quick brown fox jumps over the lazy dog " * 3,) * 20]
WORDS_OF_CORPUS = [
    " ".join(text for text in random_texts(12, seed=seed) if text.isascii()) + " the quick brown foxes are jumping"
    for seed in range(300)
]
LLAMA = {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_bos_token": True, "add_eos_token": False}


def train(folder: Path, **options: Any) -> Any:
    """A SentencePiece model in the folder; the library's own processor of it."""
    sentencepiece = parity_package("sentencepiece")
    (folder / "corpus.txt").write_text(
        "\n".join(text.replace("\n", " ") for text in [*SAMPLES * 9, *WORDS_OF_CORPUS] if text.strip())
    )
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "corpus.txt"),
        model_prefix=str(folder / "tokenizer"),
        minloglevel=2,
        hard_vocab_limit=False,
        **{"vocab_size": 900, "character_coverage": 0.98, "num_threads": 1, **options},
    )
    (folder / "corpus.txt").unlink()
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))


def converted(folder: Path, config: Mapping[str, object] | None = None) -> Tokenizer:
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    files = converted_files(folder)
    assert files is not None
    return Tokenizer.from_str(files["tokenizer.json"])


LLAMA_LIKE = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"model_type": "bpe", "split_digits": True, **LLAMA_LIKE},
    "gemma": {
        "model_type": "bpe",
        **LLAMA_LIKE,
        "add_dummy_prefix": False,
        "user_defined_symbols": ["<turn>", "▁▁", "▁▁▁", "\t"],
        "pad_id": 0,
        "eos_id": 1,
        "bos_id": 2,
        "unk_id": 3,
    },
    "bpe with replacements": {"model_type": "bpe", "vocab_size": 600},
    "user-defined after a prefix": {"model_type": "bpe", **LLAMA_LIKE, "user_defined_symbols": ["<a>", "ing"]},
    "t5": {"model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "unigram with bytes": {"model_type": "unigram", **LLAMA_LIKE},
    "unigram with symbols": {"model_type": "unigram", "user_defined_symbols": ["<sep>", "qu"]},
}
UNICODE = st.text(st.characters(exclude_categories=["Cs", "Cn", "Co"]), max_size=40)


def learned_ranks() -> dict[bytes, int]:
    return dict(_learned_ranks())


@functools.cache
def _learned_ranks() -> Mapping[bytes, int]:
    """Ranks as tiktoken learns them: bytes first, then merges in their order."""
    from tokenizers import models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=1200, initial_alphabet=letters, show_progress=False)
    )
    byte_of = {letter: byte for byte, letter in byte_letters().items()}
    vocabulary = tokenizer.get_vocab()
    return {
        bytes(byte_of[letter] for letter in token): number
        for number, token in enumerate(sorted(vocabulary, key=vocabulary.__getitem__))
    }


def byte_letters() -> dict[int, str]:
    from mlcbuild.compiler.tokenizer.from_tiktoken import _letters

    return _letters()


def write_ranks(path: Path, ranks: Mapping[bytes, int]) -> Path:
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    return path


def write_merges(folder: Path) -> None:
    from tokenizers import models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=letters, show_progress=False, special_tokens=["<|endoftext|>"]
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"]))


WORD_PIECES = (
    *(
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "the",
        "quick",
        "cap",
        "##ital",
        "of",
        "is",
        "par",
        "##is",
        "naive",
    ),
    *(letter for letter in "abcdefghijklmnopqrstuvwxyzABCDEH0123456789.,'-+=中文日本é"),
    *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789é"),
)
