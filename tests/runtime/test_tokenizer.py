"""Text that comes token by token is the text of all tokens together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from mlcbuild.errors import StageError, UsageError
from mlcbuild.runtime.chat_message import one_turn
from mlcbuild.runtime.package import ModelPackage
from mlcbuild.runtime.tokenizer import PackageTokenizer

SPACE = "\u2581"


def byte_level() -> Tokenizer:
    """Every byte, three merged words, a special token and one that is not."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["he", "hel", "Ġa"]
    vocabulary = {token: number for number, token in enumerate([*letters, *words])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("h", "e"), ("he", "l"), ("Ġ", "a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.add_tokens(["<tool>"])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """As SentencePiece has it: bytes as tokens of last resort, and a space before the text."""
    tokens = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), SPACE, "a", "b", f"{SPACE}a", "é"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [(SPACE, "a")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single=["<s>", "$A"], special_tokens=[("<s>", 1)])
    return tokenizer


def package(directory: Path, tokenizer: Tokenizer, **config: object) -> PackageTokenizer:
    is_fallback = "ByteFallback" in tokenizer.to_str()
    chat: dict[str, Any] = {
        "tokenizer_info": {
            "token_postproc_method": "byte_fallback" if is_fallback else "byte_level",
            "strip_space_in_decode": is_fallback,
        }
    }
    (directory / "tokenizer.json").write_text(tokenizer.to_str())
    return PackageTokenizer(
        ModelPackage(directory=directory, library=directory / "lib.so", chat_config=chat, tokenizer_config=dict(config))
    )


@pytest.fixture(scope="module")
def level(tmp_path_factory: pytest.TempPathFactory) -> PackageTokenizer:
    return package(tmp_path_factory.mktemp("level"), byte_level())


@pytest.fixture(scope="module")
def fallback(tmp_path_factory: pytest.TempPathFactory) -> PackageTokenizer:
    return package(tmp_path_factory.mktemp("fallback"), byte_fallback())


def streamed(tokenizer: PackageTokenizer, tokens: list[int]) -> list[str]:
    stream = tokenizer.stream()
    return [*(stream.add(token) for token in tokens), stream.finish()]


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=40))
def test_streamed_byte_level_text_is_the_text(level: PackageTokenizer, text: str) -> None:
    if text.strip():
        assert "".join(streamed(level, level.encode_raw(text))) == text


@settings(max_examples=200, deadline=None)
@given(tokens=st.lists(st.integers(0, 260), max_size=30))
def test_any_byte_level_tokens_stream_to_what_the_library_decodes(level: PackageTokenizer, tokens: list[int]) -> None:
    assert "".join(streamed(level, tokens)) == byte_level().decode(tokens, skip_special_tokens=True)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=40))
def test_streamed_byte_fallback_text_is_the_text(fallback: PackageTokenizer, text: str) -> None:
    if text and SPACE not in text:  # a text's own mark of a space reads back as one
        assert "".join(streamed(fallback, fallback.encode_raw(text))) == text


def test_character_of_several_tokens_waits_for_the_last(level: PackageTokenizer) -> None:
    pieces = streamed(level, level.encode_raw("🙂!"))
    assert pieces == ["", "", "", "🙂", "!", ""]


def test_character_that_is_never_completed_is_replaced_at_the_end(level: PackageTokenizer) -> None:
    pieces = streamed(level, level.encode_raw("a🙂")[:-1])
    assert pieces == ["a", "", "", "", "\ufffd"]


def test_special_tokens_are_not_shown_and_others_are(level: PackageTokenizer) -> None:
    end, tool = level.encode_raw("<|end|>")[0], level.encode_raw("<tool>")[0]
    assert "".join(streamed(level, [end, tool, end])) == "<tool>"
    assert level.token_bytes(100_000) == b""


def test_chat_prompt_goes_through_the_template_without_tokens_of_its_own(tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m['role'][0] + m['content'] }}{% endfor %}"
    tokenizer = package(
        tmp_path, byte_fallback(), chat_template=template, bos_token={"content": "<s>", "special": True}
    )
    assert [tokenizer.token_bytes(token) for token in tokenizer.encode_chat(one_turn("a"))][-1:] == [b"a"]
    assert tokenizer.encode_chat(one_turn("a")).count(1) == 1


def test_model_without_a_template_asks_for_raw(level: PackageTokenizer) -> None:
    with pytest.raises(UsageError, match=r"no chat template(.|\n)*--raw"):
        level.encode_chat(one_turn("hello"))


def test_bad_template_is_a_mistake_in_the_input(tmp_path: Path) -> None:
    tokenizer = package(tmp_path, byte_level(), chat_template="{{ messages.nothing.at.all }}")
    with pytest.raises(StageError, match="chat template cannot be rendered"):
        tokenizer.encode_chat(one_turn("hello"))


def test_empty_raw_prompt_begins_with_the_models_first_token(tmp_path: Path, level: PackageTokenizer) -> None:
    tokenizer = package(tmp_path, byte_level(), bos_token="<|end|>")
    assert tokenizer.encode_raw("") == tokenizer.encode_raw("<|end|>")
    with pytest.raises(UsageError, match="prompt is empty"):
        level.encode_raw("")


def test_damaged_tokenizer_is_told(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0"}))
    with pytest.raises(UsageError, match=r"tokenizer\.json cannot be read"):
        PackageTokenizer(
            ModelPackage(directory=tmp_path, library=tmp_path / "lib.so", chat_config={}, tokenizer_config={})
        )


def test_a_prompt_that_is_not_utf_8_is_told(tmp_path: Path, level: PackageTokenizer) -> None:
    prompt = b"ab\xffc".decode(errors="surrogateescape")  # as Python gives an argument
    with pytest.raises(UsageError, match="the prompt is not UTF-8: it has byte 0xff after 2 characters"):
        level.encode_raw(prompt)
    chat = package(tmp_path, byte_level(), chat_template="{{ messages[0].content }}")
    with pytest.raises(UsageError, match="the prompt is not UTF-8: it has byte 0xff after 2 characters"):
        chat.encode_chat(one_turn(prompt))
    half = package(tmp_path, byte_level(), chat_template="{{ '\ud83d' }}")
    with pytest.raises(UsageError, match=r"the text of the chat template is not UTF-8: it has U\+D83D"):
        half.encode_chat(one_turn("a"))


@pytest.mark.parametrize("template", ["", "{% if false %}x{% endif %}", "{{ '' }}\n"])
def test_a_template_that_renders_to_nothing_is_told(tmp_path: Path, template: str) -> None:
    tokenizer = package(tmp_path, byte_level(), chat_template=template)
    with pytest.raises(UsageError, match=r"chat template makes no text of the prompt(.|\n)*--raw"):
        tokenizer.encode_chat(one_turn("hello"))
