"""Folders without a tokenizer.json: their vocabulary becomes one, which cuts text as its own library does."""

from __future__ import annotations

import base64
import functools
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


# The patterns as the models' own code has them.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBERS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Words of one case or another, apart from Chinese characters.
MOONLIGHT = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?UPPER*LOWER+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?UPPER+LOWER*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MOONLIGHT = MOONLIGHT.replace("UPPER", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]")
MOONLIGHT = MOONLIGHT.replace("LOWER", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]")


@pytest.mark.parametrize(
    ("file", "class_name", "pattern"),
    [
        ("tiktoken.model", "TikTokenTokenizer", MOONLIGHT),
        ("tokenizer.model", "PreTrainedTokenizerFast", WORDS.replace("NUMBERS", r"\p{N}{1,3}")),
        ("tokenizer.model", "ChatGLM4Tokenizer", WORDS.replace("NUMBERS", r"\p{N}{1,3}")),
        ("qwen.tiktoken", "QWenTokenizer", WORDS.replace("NUMBERS", r"\p{N}")),
    ],
)
def test_tokens_are_those_of_tiktoken(tmp_path: Path, file: str, class_name: str, pattern: str) -> None:
    tiktoken = parity_package("tiktoken")
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


def test_numbers_of_arcade_tokens_count_from_the_size_that_the_class_knows(tmp_path: Path) -> None:
    ranks = learned_ranks()
    write_ranks(tmp_path / "arcade100k.tiktoken", ranks)
    with pytest.raises(StageError, match=rf"has {len(ranks)} tokens, and the class numbers .* after 100256"):
        converted(tmp_path, {"tokenizer_class": "Arcade100kTokenizer"})
    pairs = (bytes([first, second, third]) for third in range(256) for first in range(256) for second in range(256))
    more = (token for token in pairs if token not in ranks)
    while len(ranks) < 100256:
        ranks[next(more)] = len(ranks)
    write_ranks(tmp_path / "arcade100k.tiktoken", ranks)
    tokenizer = converted(tmp_path, {"tokenizer_class": "Arcade100kTokenizer"})
    numbers = {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|endofprompt|>": 100276, "<|im_end|>": 100278}
    assert {text: tokenizer.token_to_id(text) for text in numbers} == numbers
    assert tokenizer.token_to_id("<|extra0|>") == tokenizer.get_vocab_size() - 1 == 100288
    assert tokenizer.encode("e\u0301<|im_end|>").ids == [*tokenizer.encode("é").ids, 100278]


CHATGLM = ("[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")


def test_chatglm_has_special_tokens_behind_its_pieces(tmp_path: Path) -> None:
    peer = train(tmp_path, **MODELS["llama"])
    size = peer.get_piece_size()
    tokenizer = converted(tmp_path, {"tokenizer_class": "ChatGLMTokenizer"})
    assert [tokenizer.token_to_id(text) for text in CHATGLM] == list(range(size, size + len(CHATGLM)))
    # As ChatGLM 3's build_chat_input does: a role's token, then the pieces of a line, then those of the message.
    expected = [size + 6, *peer.encode("\n"), *peer.encode("quick 中文"), size + 7]
    asked = tokenizer.encode("<|user|>\n quick 中文<|assistant|>")
    assert asked.ids == [size + 1, size + 3, *expected]

    def check(text: str) -> None:
        if not any(token in text for token in (*CHATGLM, "<unk>", "<s>", "</s>", "\0", "\u2581")):
            assert tokenizer.encode(text).ids == [size + 1, size + 3, *peer.encode(text)], text

    for text in (*SAMPLES, *random_texts(100)):
        check(text)
    settings(max_examples=100, deadline=None, database=None)(given(UNICODE)(check))()


def test_chatglm_2_has_no_tokens_of_roles(tmp_path: Path) -> None:
    peer = train(tmp_path, **MODELS["llama"])
    (tmp_path / "tokenization_chatglm.py").write_text('special_tokens = ["[MASK]", "[gMASK]", "[sMASK]", "sop", "eop"]')
    tokenizer = converted(tmp_path, {"tokenizer_class": "ChatGLMTokenizer"})
    assert tokenizer.get_vocab_size() == peer.get_piece_size() + 5
    assert tokenizer.token_to_id("<|user|>") is None


def test_internlm_3_puts_a_space_after_special_tokens(tmp_path: Path) -> None:
    peer = train(tmp_path, **MODELS["llama"])
    last = peer.get_piece_size() - 1
    added = {str(last): {"content": "<|im_start|>", "special": True}}
    tokenizer = converted(tmp_path, {"tokenizer_class": "InternLM3Tokenizer", "added_tokens_decoder": added})
    assert tokenizer.encode("<|im_start|>user\nquick").ids == [1, last, *peer.encode("user\nquick")]


def tekken(folder: Path, **changes: object) -> dict[bytes, int]:
    """A tekken.json in the folder, of 20 special tokens, three of which it names; the ranks of its tokens."""
    ranks = learned_ranks()
    used = len(ranks) - 30
    document: dict[str, object] = {
        "config": {
            "pattern": TEKKEN_PATTERN,
            "num_vocab_tokens": len(ranks),
            "default_vocab_size": used + 20,
            "default_num_special_tokens": 20,
            "version": "v11",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for token, rank in ranks.items()
        ],
        "special_tokens": [
            {"rank": number, "token_str": text, "is_control": True}
            for number, text in enumerate(("<unk>", "<s>", "</s>", "[INST]"))
        ],
    }
    (folder / "tekken.json").write_text(json.dumps({**document, **changes}))
    return {token: rank for token, rank in ranks.items() if rank < used}


TEKKEN_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def test_tokens_of_tekken_are_those_of_tiktoken_behind_special_tokens(tmp_path: Path) -> None:
    tiktoken = parity_package("tiktoken")
    peer = tiktoken.Encoding("t", pat_str=TEKKEN_PATTERN, mergeable_ranks=tekken(tmp_path), special_tokens={})
    tokenizer = converted(tmp_path)

    def check(text: str) -> None:
        if not any(word in text for word in ("<", "[INST]")):
            assert tokenizer.encode(text).ids == [1, *(20 + rank for rank in peer.encode(text))], text
            assert tokenizer.decode(tokenizer.encode(text).ids) == text

    for text in (*SAMPLES, *random_texts(200)):
        check(text)
    settings(max_examples=100, deadline=None, database=None)(given(UNICODE)(check))()
    assert tokenizer.encode("[INST]a</s>").ids == [1, 3, 20 + peer.encode("a")[0], 2]
    assert tokenizer.token_to_id("<SPECIAL_19>") == 19


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"special_tokens": None}, r"whose special tokens are in code(.|\n)*tokenizer\.json"),
        ({"special_tokens": [{"rank": 20, "token_str": "<s>"}]}, "has no number below 20"),
        ({"special_tokens": [{"rank": 0, "token_str": "a"}, {"rank": 1, "token_str": "a"}]}, "have one text"),
        ({"special_tokens": [{"rank": 0, "token_str": "a"}]}, "'a' is a special token and one of the vocabulary"),
        ({"vocab": []}, "truncated or damaged: it holds 0 of"),
        ({"vocab": [{"rank": 0}] * 2000}, "is no token with its rank"),
        ({"config": {"pattern": "a"}}, "is no vocabulary of tekken"),
        ({"config": None}, "is no vocabulary of tekken"),
    ],
)
def test_a_damaged_tekken_file_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    tekken(tmp_path, **changes)
    with pytest.raises(StageError, match=message):
        converted(tmp_path)


def test_a_pattern_that_is_none_is_refused(tmp_path: Path) -> None:
    config: dict[str, object] = {"default_vocab_size": 300, "default_num_special_tokens": 20, "pattern": "[a"}
    tekken(tmp_path, config=config)
    with pytest.raises(StageError, match=r"the pattern .*is no regular expression"):
        converted(tmp_path)


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
