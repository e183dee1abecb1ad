"""Vocabularies of tiktoken and tekken become a tokenizer.json, which cuts text as tiktoken does."""

from __future__ import annotations

import base64
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings

from mlcbuild.errors import StageError
from tests.compiler.texts import SAMPLES, random_texts
from tests.compiler.vocabularies import UNICODE, converted, learned_ranks, write_ranks
from tests.parity_packages import parity_package

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
