"""Unigram and WordPiece vocabularies of GGUF files cut text as the models that the files are made of."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from mlcbuild.compiler.tokenizer.from_gguf import tokenizer_files
from mlcbuild.compiler.tokenizer.sentencepiece_model import read_model
from mlcbuild.compiler.tokenizer.word_pieces import word_piece_tokenizer
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.errors import StageError
from tests.compiler.llama_cpp import LlamaCppModel
from tests.compiler.texts import SAMPLES, random_texts
from tests.compiler.tiny_models import TINY, checkpoint, write_gguf
from tests.compiler.vocabularies import MODELS, WORD_PIECES, train


def write(folder: Path, **metadata: object) -> Path:
    tokens = metadata["tokens"]
    assert isinstance(tokens, list)
    config = {**TINY, "vocab_size": len(tokens)}
    keys = {f"tokenizer.ggml.{name.replace('__', '.')}": value for name, value in metadata.items()}
    return write_gguf(folder / "m.gguf", checkpoint(config), config, metadata=keys)  # type: ignore[arg-type]


def read(path: Path) -> Tokenizer:
    file = GGUFFile(path)
    try:
        return Tokenizer.from_str(tokenizer_files(file, {})["tokenizer.json"])
    finally:
        file.close()


@pytest.mark.parametrize("name", ["t5", "llama"])
def test_sentencepiece_vocabularies_cut_as_the_model_does(tmp_path: Path, name: str) -> None:
    """As llama.cpp's converter writes them."""
    peer = train(tmp_path, **MODELS[name])
    model = read_model(tmp_path / "tokenizer.model")
    more = {} if name == "llama" else {"precompiled_charsmap": list(model.charsmap), "remove_extra_whitespaces": True}
    path = write(
        tmp_path,
        model=name,
        tokens=[piece.text for piece in model.pieces],
        scores=[piece.score for piece in model.pieces],
        token_type=[int(piece.kind) for piece in model.pieces],
        add_space_prefix=model.adds_prefix,
        add_bos_token=False,
        eos_token_id=1 if name == "t5" else 2,
        **more,
    )
    tokenizer = read(path)
    for text in (*SAMPLES, *random_texts(100)):
        if name == "t5" and ("..." in text or "…" in text):
            continue  # a tie, which each library breaks its own way
        assert tokenizer.encode(text, add_special_tokens=False).ids == peer.encode(text), text
    if name == "llama":
        other = LlamaCppModel(path)
        for text in (*SAMPLES, *random_texts(100)):
            assert tokenizer.encode(f"{text}</s>{text}").ids == other.encode(f"{text}</s>{text}", special=True), text
        other.close()


def test_word_pieces_are_put_back(tmp_path: Path) -> None:
    """llama.cpp's converter marks beginnings of words, where BERT marks what goes on; llama.cpp cuts the same."""
    special = [text for text in WORD_PIECES if text.startswith("[")]
    tokens = [
        text if text in special else text[2:] if text.startswith("##") else f"\u2581{text}" for text in WORD_PIECES
    ]
    path = write(
        tmp_path,
        model="bert",
        tokens=tokens,
        token_type=[3 if text in special else 1 for text in WORD_PIECES],
        unknown_token_id=1,
        cls_token_id=2,
        seperator_token_id=3,
        padding_token_id=0,
        mask_token_id=4,
        eos_token_id=3,
        bos_token_id=2,
    )
    tokenizer, peer = read(path), LlamaCppModel(path)
    expected = word_piece_tokenizer(
        {text: number for number, text in enumerate(WORD_PIECES)},
        unknown="[UNK]",
        lowercase=True,
        strips_accents=True,
        where="",
    )
    for text in (*SAMPLES, *random_texts(100)):
        assert tokenizer.encode(text, add_special_tokens=False).ids == expected.encode(text).ids, text
    for text in ("The capital of Paris", "naïve quick,quick 中文 x=1", ""):
        assert tokenizer.encode(text).ids == peer.encode(text, special=True), text
    peer.close()
    assert tokenizer.encode("the").tokens == ["[CLS]", "the", "[SEP]"]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"model": "t5", "scores": [0.0]}, r"tokens, scores and token types are not of one number"),
        ({"model": "t5", "precompiled_charsmap": [1, 2, 3, 4, 5]}, r"its table of replacements has 5 bytes"),
        ({"model": "t5", "unknown_token_id": 900}, r'"tokenizer\.ggml\.unknown_token_id" is 900; the vocabulary has'),
        (
            {"model": "bert", "cls_token_id": 101},
            r"cls_token_id\" is 101; the vocabulary has 3 tokens",
        ),
        ({"model": "rwkv"}, r'the kind "rwkv"; "gpt2", "llama", "t5" and "bert" can be rebuilt'),
    ],
)
def test_damaged_vocabularies_are_told(tmp_path: Path, metadata: dict[str, object], message: str) -> None:
    whole = {"tokens": ["<unk>", "a", "b"], "token_type": [2, 1, 1], "scores": [0.0, -1.0, -2.0], "unknown_token_id": 0}
    path = write(tmp_path, **{**whole, **metadata})
    with pytest.raises(StageError, match=message):
        read(path)
