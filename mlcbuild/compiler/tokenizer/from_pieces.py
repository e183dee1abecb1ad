"""A tokenizer of a SentencePiece model: it finds the same pieces as SentencePiece's own `encode`."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from mlcbuild.compiler.tokenizer.sentencepiece_model import Piece, PieceKind, SentencePieceModel
from mlcbuild.errors import StageError

SPACE = "\u2581"
_NEVER = -1e6  # the score of a piece that no text is cut into


def piece_tokenizer(
    model: SentencePieceModel, *, where: str, prefix_after_special: bool = True, keeps_user_defined: bool = True
) -> Tokenizer:
    """Without special tokens, which its user adds. With `prefix_after_special` the space before a text also comes after
    each special token in it. `keeps_user_defined`: user-defined pieces are found before any others, in the text as it
    is then normalized. Raises StageError for a damaged model; `where` names its file."""
    tokenizer = Tokenizer(_unigram(model, where) if model.is_unigram else _bpe(model, where, keeps_user_defined))
    steps: list[normalizers.Normalizer] = []
    cuts: list[pre_tokenizers.PreTokenizer] = []
    if model.charsmap:
        steps.append(_precompiled(model.charsmap, where))
    if model.trims:
        steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if model.adds_prefix and prefix_after_special:
        steps.append(normalizers.Prepend(SPACE))
    elif model.adds_prefix:
        cuts.append(pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="first", split=False))
    steps.append(normalizers.Replace(" ", SPACE))
    tokenizer.normalizer = normalizers.Sequence(steps)
    defined = [piece.text for piece in model.pieces if piece.kind is PieceKind.USER_DEFINED]
    if defined and keeps_user_defined:
        longest_first = sorted(defined, key=len, reverse=True)
        cuts.append(pre_tokenizers.Split(Regex("|".join(map(re.escape, longest_first))), behavior="isolated"))
    if cuts:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    endings: list[decoders.Decoder] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if model.adds_prefix:
        endings.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(endings)
    return tokenizer


def _unigram(model: SentencePieceModel, where: str) -> Any:
    """Only normal and user-defined pieces are found in texts: others have a score that no cut can want."""
    found = (PieceKind.NORMAL, PieceKind.USER_DEFINED)
    scored = [(piece.text, piece.score if piece.kind in found else _NEVER) for piece in model.pieces]
    if "unk" not in model.special:
        raise StageError(f"{where}: a Unigram model needs a token for what is unknown, and has none")
    return _made(models.Unigram, where, vocab=scored, unk_id=model.special["unk"], byte_fallback=model.has_bytes)


def _bpe(model: SentencePieceModel, where: str, keeps_user_defined: bool) -> Any:
    unknown = model.special.get("unk")
    return _made(
        models.BPE,
        where,
        vocab={piece.text: number for number, piece in enumerate(model.pieces)},
        merges=_merges(model.pieces),
        unk_token=None if unknown is None else model.pieces[unknown].text,
        fuse_unk=True,
        byte_fallback=True,
        # A user-defined piece is cut off and no merge makes it.
        ignore_merges=keeps_user_defined and any(piece.kind is PieceKind.USER_DEFINED for piece in model.pieces),
    )


def _merges(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """SentencePiece keeps no merges: a pair may merge where the result is a piece, best score first."""
    numbers = {piece.text: number for number, piece in enumerate(pieces)}
    found: list[tuple[float, int, int, tuple[str, str]]] = []
    for piece in pieces:
        if piece.kind is not PieceKind.NORMAL:
            continue
        text = piece.text
        for split in range(1, len(text)):
            left, right = numbers.get(text[:split]), numbers.get(text[split:])
            if left is not None and right is not None:
                found.append((-piece.score, left, right, (text[:split], text[split:])))
    return [pair for _, _, _, pair in sorted(found)]


def _precompiled(charsmap: bytes, where: str) -> Any:
    """The table begins with the size of its index, in bytes, whose entries have four."""
    size = struct.unpack("<I", charsmap[:4])[0] if len(charsmap) >= 4 else 1
    if size % 4 or size > len(charsmap) - 4:
        raise StageError(f"{where} is damaged: its table of replacements has {len(charsmap)} bytes")
    return _made(normalizers.Precompiled, where, charsmap)


def _made(kind: Any, where: str, *arguments: object, **named: object) -> Any:
    try:
        return kind(*arguments, **named)
    except Exception as error:  # the library raises nothing more specific
        raise StageError(f"{where}: the vocabulary is damaged: {error}") from error
