"""Vocabularies that are truncated, damaged or absurd are refused with the file's name; nothing else happens."""

from __future__ import annotations

import contextlib
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcbuild.compiler.stages import import_config
from mlcbuild.compiler.tokenizer.converted import converted_files
from mlcbuild.compiler.tokenizer.protobuf import ProtobufError, fields
from mlcbuild.errors import StageError
from mlcbuild.rules.families import families
from tests.compiler.resolving import readers
from tests.compiler.tiny_models import write_config
from tests.compiler.vocabularies import MODELS, learned_ranks, train, write_merges, write_ranks


def length_delimited(number: int, content: bytes) -> bytes:
    size, encoded = len(content), b""
    while size > 127:
        encoded += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + encoded + bytes([size]) + content


def piece(text: bytes, score: float = 0.0, kind: int = 1) -> bytes:
    return length_delimited(1, length_delimited(1, text) + b"\x15" + struct.pack("<f", score) + bytes([3 << 3, kind]))


UNKNOWN = piece(b"<unk>", kind=2)


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_a_damaged_sentencepiece_model_is_refused_or_read(tmp_path: Path, name: str) -> None:
    train(tmp_path, **MODELS[name], vocab_size=400) if name == "t5" else train(tmp_path, **MODELS[name])
    path = tmp_path / "tokenizer.model"
    whole = path.read_bytes()
    source = random.Random(0)
    for _ in range(150):
        broken = bytearray(whole)
        if source.random() < 0.3:
            broken = broken[: source.randrange(len(broken))]
        else:
            for _ in range(source.randrange(1, 30)):
                broken[source.randrange(len(broken))] = source.randrange(256)
        path.write_bytes(bytes(broken))
        with contextlib.suppress(StageError):
            converted_files(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"the vocabulary is empty"),
        (UNKNOWN[:-1], r"truncated or damaged: it ends inside field 1, which begins at byte 0"),
        (
            b"\x0a" + b"\xff" * 9 + b"\x01",
            r"it ends inside field 1, which begins at byte 0 and has 1844674407370955161",
        ),
        (b"\x80" * 40, r"the number at byte 0 has no end"),
        (b"\x0b" * 400, r"field 1 is of the unknown kind 3"),
        (UNKNOWN + piece(b"a") * 2, r"has the token 'a' twice"),
        (UNKNOWN + piece(b"\xff\xfe"), r"field 1 is no text"),
        (UNKNOWN + piece(b"a", float("nan")), r"the score of piece 1 is no number"),
        (UNKNOWN + piece(b"a", kind=9), r"piece 1 has no text, or is of the unknown kind 9"),
        (UNKNOWN + length_delimited(2, b"\x18\x03"), r"is a model of the type word"),
        (UNKNOWN + length_delimited(2, b"\xc0\x01\x01"), r"treat_whitespace_as_suffix"),
        (UNKNOWN + length_delimited(3, length_delimited(2, b"\xff\xff\xff\xff")), r"its table of replacements has 4"),
        (piece(b"a") + length_delimited(2, b"\xc0\x02\x07"), r"needs a token for what is unknown"),
        (b"PK\x03\x04 not a model", r"truncated or damaged"),
    ],
)
def test_what_is_wrong_with_a_sentencepiece_model_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "tokenizer.model").write_bytes(content)
    with pytest.raises(StageError, match=rf"tokenizer\.model.*{message}|{message}"):
        converted_files(tmp_path)


def test_messages_inside_of_messages_are_read_when_asked_for() -> None:
    """A million levels are bytes of one field, and cost no recursion."""
    message = b"\x0a\x00"
    for _ in range(2000):
        message = length_delimited(1, message)
    (only,) = fields(message)
    assert len(only.data()) < len(message)
    with pytest.raises(ProtobufError):
        list(fields(b"\x0a\x05ab"))


def test_a_damaged_vocabulary_of_tiktoken_is_told(tmp_path: Path) -> None:
    ranks = learned_ranks()
    path = write_ranks(tmp_path / "tokenizer.model", ranks)
    lines = path.read_bytes().splitlines(keepends=True)
    for content, message in (
        (b"".join(lines[:200]), r"lack a byte|no ranks from 0 on"),
        (b"".join(lines[:-3]) + b"abc", r"line 1198 is no token with its rank"),
        (b"".join([*lines, b"QQ== 7777\n"]), r"is there twice"),
        (b"".join(lines[1:]), r"no ranks from 0 on, or lack a byte"),
        (b"".join([*lines, b"YWFhYWFhYWFhYWFh -5\n"]), r"no ranks from 0 on"),
    ):
        path.write_bytes(content)
        with pytest.raises(StageError, match=rf"tokenizer\.model is truncated or damaged(.|\n)*({message})"):
            converted_files(tmp_path)
    path.write_bytes(b"".join(lines[:-100]))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"added_tokens_decoder": {str(len(lines)): {"content": "<|end|>"}}})
    )
    with pytest.raises(StageError, match=r"has 1100 tokens, and the first .* the number 1200(.|\n)*truncated"):
        converted_files(tmp_path)


def drop_a_token(folder: Path) -> None:
    vocabulary = json.loads((folder / "vocab.json").read_text())
    vocabulary.pop(next(text for text in vocabulary if len(text) == 2))
    (folder / "vocab.json").write_text(json.dumps(vocabulary))


def write_text(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text)

    return write


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_a_token, r"merges\.txt: the vocabulary is damaged"),
        (write_text("merges.txt", "#version: 0.2\na b\nabc"), r"merges\.txt is truncated or damaged: line 3, 'abc'"),
        (write_text("merges.txt", "a b c\n"), r"line 1, 'a b c', is no pair of tokens"),
        (write_text("merges.txt", "not a\n"), r"merges\.txt: the vocabulary is damaged"),
        (write_text("vocab.json", '{"a": 0, "b": 0}'), r"two tokens have one number"),
        (write_text("vocab.json", '{"a": "0"}'), r"the token 'a' has the number '0'"),
        (write_text("vocab.json", '{"a": -1}'), r"has the number -1"),
        (write_text("vocab.json", '{"a": 0'), r"is not valid JSON"),
        (write_text("tokenizer_config.json", '{"tokenizer_class": 3}'), r'"tokenizer_class" is 3'),
        (write_text("tokenizer_config.json", '{"added_tokens_decoder": [1]}'), r"has to be an object"),
        (write_text("tokenizer_config.json", '{"added_tokens_decoder": {"x": "a"}}'), r"the added token 'x' is 'a'"),
        (
            write_text("tokenizer_config.json", '{"added_tokens_decoder": {"999999": {"content": "<x>"}}}'),
            r"'<x>' has the number 999999, and the next free number.* is 900",
        ),
    ],
)
def test_what_is_wrong_with_a_vocabulary_with_merges_is_told(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    write_merges(tmp_path)
    damage(tmp_path)
    with pytest.raises(StageError, match=message):
        converted_files(tmp_path)


def test_nothing_looks_whole_after_a_damaged_vocabulary(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_config(folder / "config.json")
    (folder / "tokenizer.model").write_bytes(UNKNOWN[:-1])
    with pytest.raises(StageError, match=r"tokenizer\.model is truncated or damaged"):
        import_config.run(
            readers=readers(),
            source=folder,
            config=tmp_path / "config.json",
            tokenizer=tmp_path / "tokenizer",
            vocabulary=tmp_path / "vocabulary.json",
            licenses=tmp_path / "licenses",
            families=families(),
        )
    assert not (tmp_path / "tokenizer" / "tokenizer.json").exists()
    assert not (tmp_path / "vocabulary.json").exists()
