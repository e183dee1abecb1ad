"""Folders without a tokenizer.json: their vocabulary becomes one, which cuts text as its own library does."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings

from mlcbuild.compiler.tokenizer.converted import converted_files
from mlcbuild.errors import StageError
from tests.compiler.texts import SAMPLES, random_texts
from tests.compiler.vocabularies import LLAMA, MODELS, UNICODE, WORD_PIECES, converted, train, write_merges


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


def test_a_class_whose_code_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    train(tmp_path, **MODELS["t5"])
    with pytest.raises(StageError, match=r"for the class XLMRobertaTokenizer(.|\n)*known: .*LlamaTokenizer"):
        converted(tmp_path, {"tokenizer_class": "XLMRobertaTokenizerFast"})


def test_a_folder_without_a_vocabulary_is_none(tmp_path: Path) -> None:
    assert converted_files(tmp_path) is None
