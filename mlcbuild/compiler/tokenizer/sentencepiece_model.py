"""A SentencePiece model: its pieces, and how it treats a text before it looks for them.

Format: google/sentencepiece, src/sentencepiece_model.proto (`ModelProto`).
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlcbuild.compiler.tokenizer.protobuf import Field, ProtobufError, fields
from mlcbuild.errors import StageError

_MAX_PIECES = 1 << 22


class PieceKind(enum.IntEnum):
    """`SentencePiece.Type`; `token_type` of a GGUF file has the same numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One entry of the vocabulary. `score` is a logarithm for Unigram, and ranks merges for BPE."""

    text: str
    score: float = 0.0
    kind: PieceKind = PieceKind.NORMAL


@dataclass(frozen=True, slots=True, kw_only=True)
class SentencePieceModel:
    """`special` are the numbers of `unk`, `bos`, `eos` and `pad`, of those that there are. `charsmap` is a compiled
    table of replacements, empty for none. `adds_prefix`: a space comes before the text; `trims`: spaces at the ends and
    double ones are left out."""

    pieces: tuple[Piece, ...]
    is_unigram: bool
    special: Mapping[str, int] = field(default_factory=dict)
    charsmap: bytes = b""
    adds_prefix: bool = True
    trims: bool = False

    @property
    def has_bytes(self) -> bool:
        """Whether characters without a piece become their bytes."""
        return any(piece.kind is PieceKind.BYTE for piece in self.pieces)

    def named(self, names: Mapping[int, str]) -> SentencePieceModel:
        """With other texts for some pieces, by their numbers: checkpoints rename pieces that were kept free. Raises
        StageError where two would have one text."""
        pieces = list(self.pieces)
        for number, text in names.items():
            pieces[number] = replace(pieces[number], text=text)
        check_pieces(tuple(pieces), "the vocabulary, with its added tokens,")
        return replace(self, pieces=tuple(pieces))


def read_model(path: Path) -> SentencePieceModel:
    """The model in a `tokenizer.model`. Raises StageError for a damaged file, and for a model that works otherwise than
    Unigram and BPE do here."""
    try:
        return _model(path, path.read_bytes())
    except ProtobufError as error:
        raise StageError(f"{path} is truncated or damaged: {error}", advice=("fetch it again",)) from None


def check_pieces(pieces: tuple[Piece, ...], where: str) -> None:
    """Raise StageError for a vocabulary that is empty or has a piece twice."""
    if not pieces:
        raise StageError(f"{where}: the vocabulary is empty")
    for text, count in Counter(piece.text for piece in pieces).items():
        if count > 1:
            raise StageError(f"{where}: the vocabulary has the token {text!r} twice")


def _model(path: Path, content: bytes) -> SentencePieceModel:
    pieces: list[Piece] = []
    trainer: dict[int, Field] = {}
    normalizer: dict[int, Field] = {}
    for one in fields(content):
        if one.number == 1:
            pieces.append(_piece(path, one.data(), len(pieces)))
            if len(pieces) > _MAX_PIECES:
                raise StageError(f"{path} is damaged: it has more than {_MAX_PIECES} pieces")
        elif one.number == 2:
            trainer |= {inner.number: inner for inner in fields(one.data())}
        elif one.number == 3:
            normalizer |= {inner.number: inner for inner in fields(one.data())}
        elif one.number == 5 and any(inner.number == 2 and inner.data() for inner in fields(one.data())):
            raise StageError(f"{path} rewrites text when it decodes (denormalizer_spec), which is not supported")
    check_pieces(tuple(pieces), str(path))
    kind = _integer(trainer, 3, 1)
    if kind not in (1, 2):
        names = {3: "word", 4: "char"}
        raise StageError(
            f"{path} is a model of the type {names.get(kind, kind)}", advice=("unigram and bpe are supported",)
        )
    if _integer(trainer, 24, 0):
        raise StageError(f"{path} marks the ends of words (treat_whitespace_as_suffix), which is not supported")
    if not _integer(normalizer, 5, 1):
        raise StageError(f"{path} keeps spaces as they are (escape_whitespaces is false), which is not supported")
    special = {"unk": _integer(trainer, 40, 0), "bos": _integer(trainer, 41, 1), "eos": _integer(trainer, 42, 2)}
    special["pad"] = _integer(trainer, 43, -1)
    return SentencePieceModel(
        pieces=tuple(pieces),
        is_unigram=kind == 1,
        special={name: number for name, number in special.items() if 0 <= number < len(pieces)},
        charsmap=normalizer[2].data() if 2 in normalizer else b"",
        adds_prefix=bool(_integer(normalizer, 3, 1)),
        trims=bool(_integer(normalizer, 4, 1)),
    )


def _piece(path: Path, content: bytes, number: int) -> Piece:
    found = {inner.number: inner for inner in fields(content)}
    kind = _integer(found, 3, PieceKind.NORMAL)
    if 1 not in found or kind not in set(PieceKind):
        raise StageError(f"{path} is damaged: piece {number} has no text, or is of the unknown kind {kind}")
    score = found[2].float32() if 2 in found else 0.0
    if score != score:
        raise StageError(f"{path} is damaged: the score of piece {number} is no number")
    return Piece(text=found[1].text(), score=score, kind=PieceKind(kind))


def _integer(found: Mapping[int, Field], number: int, default: int) -> int:
    return found[number].integer() if number in found else default
