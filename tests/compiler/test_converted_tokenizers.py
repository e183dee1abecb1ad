"""Folders without a tokenizer.json: their vocabulary becomes one, which cuts text as its own library does."""

from __future__ import annotations

import base64
import json
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from mlcbuild.compiler.tokenizer.converted import converted_files
from mlcbuild.errors import StageError
from tests.compiler.texts import SAMPLES, random_texts

CORPUS = [*SAMPLES * 5, *random_texts(400, seed=3), *("the quick brown fox jumps over the lazy dog " * 3,) * 20]
WORDS_OF_CORPUS = [
    " ".join(text for text in random_texts(12, seed=seed) if text.isascii()) + " the quick brown foxes are jumping"
    for seed in range(300)
]
LLAMA = {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_bos_token": True, "add_eos_token": False}


def train(folder: Path, **options: Any) -> Any:
    """A SentencePiece model in the folder; the library's own processor of it."""
    sentencepiece = pytest.importorskip("sentencepiece")
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


@pytest.mark.parametrize("name", MODELS)
def test_pieces_are_those_of_sentencepiece(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.mktemp("model")
    peer = train(folder, **MODELS[name])
    tokenizer = converted(folder, {"add_bos_token": False})
    control = [peer.id_to_piece(number) for number in range(peer.get_piece_size()) if peer.is_control(number)]

    replaces = MODELS[name].get("normalization_rule_name") != "identity"

    def check(text: str) -> None:
        if "\0" in text or "\u2581" in text or any(token in text for token in (*control, "<unk>")):
            return  # SentencePiece has its own use for them, and does not find special tokens in a text
        if replaces and any(unicodedata.category(letter).startswith("M") for letter in text):
            return  # the tokenizers library replaces a letter together with the marks on it, and loses these
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        expected = peer.encode(text)
        if MODELS[name]["model_type"] == "unigram":  # `. ..` and `.. .` are equally good, and either is found
            scores = [sum(peer.get_score(number) for number in each) for each in (ids, expected)]
            assert sorted(ids) == sorted(expected) or abs(scores[0] - scores[1]) < 1e-4, text
        else:
            assert ids == expected, (text, tokenizer.encode(text).tokens, peer.encode(text, out_type=str))
        if peer.piece_to_id("<0x41>") != peer.unk_id():
            assert tokenizer.decode(ids) == peer.decode(ids), text

    for text in (*SAMPLES, *random_texts(200)):
        check(text)
    settings(max_examples=100, deadline=None, database=None)(given(UNICODE)(check))()


def test_special_and_added_tokens_have_the_numbers_that_the_files_say(tmp_path: Path) -> None:
    peer = train(tmp_path, **MODELS["llama"])
    size = peer.get_piece_size()
    added = {
        str(size): {"content": "<pad>", "special": True},
        str(size + 1): {"content": "<tool>", "special": False, "normalized": False},
    }
    tokenizer = converted(tmp_path, {**LLAMA, "added_tokens_decoder": added, "pad_token": "<pad>"})
    assert tokenizer.token_to_id("<s>") == 1
    assert tokenizer.encode("<tool>").ids == [1, size + 1]
    assert tokenizer.encode("hello").ids == [1, *peer.encode("hello")]
    assert tokenizer.decode([1, size, *peer.encode("hello")]) == "hello"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**LLAMA, "add_eos_token": True}))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<pad>": size}))
    assert converted(tmp_path).encode("hello<pad>").ids == [1, *peer.encode("hello"), size, 2]


def test_without_a_configuration_the_model_names_its_special_tokens(tmp_path: Path) -> None:
    train(tmp_path, **MODELS["llama"])
    files = converted_files(tmp_path)
    assert files is not None
    assert json.loads(files["tokenizer_config.json"]) == {
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "add_bos_token": True,
        "add_eos_token": False,
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("name", "class_name", "more"),
    [
        ("llama", "LlamaTokenizer", {"legacy": True, "add_bos_token": True}),
        ("llama", "LlamaTokenizer", {"legacy": False, "add_bos_token": True}),
        ("t5", "T5Tokenizer", {"extra_ids": 0, "pad_token": "<pad>"}),
    ],
)
def test_ids_are_those_of_transformers(tmp_path: Path, name: str, class_name: str, more: dict[str, object]) -> None:
    import transformers

    train(tmp_path, **MODELS[name])
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    if name == "t5":
        (tmp_path / "tokenizer.model").rename(tmp_path / "spiece.model")
        del special["bos_token"]
    config = {"tokenizer_class": class_name, **special, **more}
    tokenizer = converted(tmp_path, config)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5" if name == "t5" else "llama"}))
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (*SAMPLES, *random_texts(200)):
        # With `legacy`, transformers puts no space before a text that begins with one; SentencePiece does.
        if text.strip() and not (more.get("legacy") and text[0] == " "):
            assert tokenizer.encode(text).ids == peer(text).input_ids, text


def learned_ranks() -> dict[bytes, int]:
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


# The patterns as the models' own code has them.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBERS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.mark.parametrize(
    ("file", "class_name", "pattern"),
    [
        ("tokenizer.model", "PreTrainedTokenizerFast", WORDS.replace("NUMBERS", r"\p{N}{1,3}")),
        ("tokenizer.model", "ChatGLM4Tokenizer", WORDS.replace("NUMBERS", r"\p{N}{1,3}")),
        ("qwen.tiktoken", "QWenTokenizer", WORDS.replace("NUMBERS", r"\p{N}")),
    ],
)
def test_tokens_are_those_of_tiktoken(tmp_path: Path, file: str, class_name: str, pattern: str) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = learned_ranks()
    write_ranks(tmp_path / file, ranks)
    size = len(ranks)
    names = ("<|begin_of_text|>", "[gMASK]", "<sop>")
    added = {str(size + number): {"content": name, "special": True} for number, name in enumerate(names)}
    config: dict[str, object] = {"tokenizer_class": class_name}
    if class_name != "QWenTokenizer":
        config["added_tokens_decoder"] = added
    tokenizer = converted(tmp_path, config)
    peer = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def check(text: str) -> None:
        expected = unicodedata.normalize("NFC", text) if class_name == "QWenTokenizer" else text
        if not any(name in text for name in (*names, "<|")):
            assert tokenizer.encode(text, add_special_tokens=False).ids == peer.encode(expected), text

    for text in (*SAMPLES, *random_texts(300)):
        check(text)
    settings(max_examples=100, deadline=None, database=None)(given(UNICODE)(check))()
    if class_name == "ChatGLM4Tokenizer":
        assert tokenizer.encode("a").ids[:2] == [size + 1, size + 2]
    if class_name == "QWenTokenizer":
        assert tokenizer.token_to_id("<|im_start|>") == size + 1
        assert tokenizer.token_to_id("<|extra_204|>") == size + 207
    else:
        assert tokenizer.token_to_id("<|begin_of_text|>") == size
        assert tokenizer.decode(tokenizer.encode("né 中文").ids) == "né 中文"


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


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("class_name", "model_type"), [("GPT2Tokenizer", "gpt2"), ("Qwen2Tokenizer", "qwen2")])
def test_vocabularies_with_merges_give_the_ids_of_transformers(
    tmp_path: Path, class_name: str, model_type: str
) -> None:
    import transformers

    write_merges(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    config = {"tokenizer_class": class_name, "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    tokenizer = converted(tmp_path, config)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (*SAMPLES, *random_texts(200)):
        assert tokenizer.encode(text).ids == peer(text).input_ids, text


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("lowercase", [True, False])
def test_word_pieces_are_those_of_transformers(tmp_path: Path, lowercase: bool) -> None:
    import transformers

    (tmp_path / "vocab.txt").write_text("\n".join(WORD_PIECES) + "\n")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    tokenizer = converted(tmp_path, {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase})
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (*SAMPLES, *random_texts(100)):
        assert tokenizer.encode(text).ids == peer(text).input_ids, text
    assert tokenizer.encode("the", "quick").tokens == ["[CLS]", "the", "[SEP]", "quick", "[SEP]"]


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


def test_a_class_whose_code_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    train(tmp_path, **MODELS["t5"])
    with pytest.raises(StageError, match=r"for the class XLMRobertaTokenizer(.|\n)*known: .*LlamaTokenizer"):
        converted(tmp_path, {"tokenizer_class": "XLMRobertaTokenizerFast"})


def test_a_folder_without_a_vocabulary_is_none(tmp_path: Path) -> None:
    assert converted_files(tmp_path) is None
