"""The tokenizer of a Hugging Face folder that has no tokenizer.json, from the vocabulary that it has.

It is a SentencePiece model, a vocabulary of tiktoken, tekken.json, vocab.json with merges.txt, or vocab.txt of BERT.
What else the class of a tokenizer does is in `tokenizer_classes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, normalizers

from mlcbuild.compiler.models.config import read_document
from mlcbuild.compiler.placeholder_files import HEAD_BYTES, refuse_placeholder
from mlcbuild.compiler.tokenizer.around import add_around
from mlcbuild.compiler.tokenizer.byte_level import byte_level_tokenizer
from mlcbuild.compiler.tokenizer.from_pieces import piece_tokenizer
from mlcbuild.compiler.tokenizer.from_tekken import tekken_tokenizer
from mlcbuild.compiler.tokenizer.from_tiktoken import is_tiktoken, tiktoken_tokenizer
from mlcbuild.compiler.tokenizer.sentencepiece_model import PieceKind, read_model
from mlcbuild.compiler.tokenizer.settings import CONFIG, TokenizerSettings, read_settings
from mlcbuild.compiler.tokenizer.tokenizer_classes import (
    MERGES,
    PIECES,
    TEKKEN,
    TIKTOKEN,
    WORD_PIECES,
    TokenizerClass,
    known_class,
)
from mlcbuild.compiler.tokenizer.word_pieces import word_piece_tokenizer
from mlcbuild.errors import StageError

_SENTENCE_PIECE = ("tokenizer.model", "spiece.model")


def converted_files(directory: Path) -> dict[str, str] | None:
    """Texts by file name: tokenizer.json, and tokenizer_config.json if there is none. None for a folder without a
    vocabulary. Raises StageError for a vocabulary that is damaged, and for a class that is not known."""
    settings = read_settings(directory)
    for name in _SENTENCE_PIECE:
        if (path := directory / name).is_file():
            refuse_placeholder(_head(path), path)
            return _of_tiktoken(path, settings) if is_tiktoken(path) else _of_pieces(path, settings)
    if tiktoken := [*sorted(directory.glob("*.tiktoken")), *sorted(directory.glob("tiktoken.model"))]:
        return _of_tiktoken(tiktoken[0], settings)
    if (directory / "tekken.json").is_file():
        return _of_tekken(directory / "tekken.json", settings)
    if (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file():
        return _of_merges(directory, settings)
    if (directory / "vocab.txt").is_file():
        return _of_word_pieces(directory / "vocab.txt", settings)
    return None


def _of_pieces(path: Path, settings: TokenizerSettings) -> dict[str, str]:
    known = known_class(PIECES, settings, path)
    model = read_model(path)
    model = model.named({number: name for number, name in settings.names.items() if number < len(model.pieces)})
    tokenizer = piece_tokenizer(
        model,
        where=str(path),
        prefix_after_special=settings.flag("legacy", known.prefix_after_special),
    )
    control = [piece.text for piece in model.pieces if piece.kind in (PieceKind.CONTROL, PieceKind.UNKNOWN)]
    control += known.special_tokens(path, len(model.pieces))
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in control])
    own = {f"{name}_token": model.pieces[number].text for name, number in model.special.items()}
    return _finished(tokenizer, settings, known, own, raw=model.adds_prefix)


def _of_tiktoken(path: Path, settings: TokenizerSettings) -> dict[str, str]:
    known = known_class(TIKTOKEN, settings, path)
    tokenizer = tiktoken_tokenizer(path, known.cut)
    if known.is_nfc:
        tokenizer.normalizer = normalizers.NFC()
    made = known.special_tokens(path, tokenizer.get_vocab_size())
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in made])
    if settings.added:
        size, last = tokenizer.get_vocab_size(), max(settings.added)
        if (first := min((number for number in settings.added if number >= size), default=size)) > size:
            raise StageError(
                f"{path} has {size} tokens, and the first of those added after them has the number {first}",
                advice=("fetch it again: it may be truncated",),
            )
        names = [settings.names.get(number, f"<|reserved_token_{number}|>") for number in range(size, last + 1)]
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    return _finished(tokenizer, settings, known, {})


def _of_tekken(path: Path, settings: TokenizerSettings) -> dict[str, str]:
    tokenizer = tekken_tokenizer(path)
    own = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    own = {name: text for name, text in own.items() if tokenizer.token_to_id(text) is not None}
    return _finished(tokenizer, settings, TEKKEN, own)


def _of_merges(directory: Path, settings: TokenizerSettings) -> dict[str, str]:
    known = known_class(MERGES, settings, directory / "vocab.json")
    tokenizer = byte_level_tokenizer(
        _vocabulary(directory / "vocab.json"),
        _merges(directory / "merges.txt"),
        known.cut,
        where=str(directory / "merges.txt"),
        adds_prefix=settings.flag("add_prefix_space", False),
    )
    if known.is_nfc:
        tokenizer.normalizer = normalizers.NFC()
    return _finished(tokenizer, settings, known, {})


def _of_word_pieces(path: Path, settings: TokenizerSettings) -> dict[str, str]:
    known = known_class(WORD_PIECES, settings, path)
    vocabulary: dict[str, int] = {}
    for number, line in enumerate(_text(path).split("\n")):
        if line and vocabulary.setdefault(line.rstrip("\r"), number) != number:
            raise StageError(f"{path}: the vocabulary has the token {line!r} twice")
    own = {
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "mask_token": "[MASK]",
    }
    own = {name: settings.special.get(name, text) for name, text in own.items()}
    tokenizer = word_piece_tokenizer(
        vocabulary,
        unknown=own["unk_token"],
        lowercase=settings.flag("do_lower_case", True),
        strips_accents=settings.flags.get("strip_accents"),
        where=str(path),
    )
    if missing := [text for text in (own["cls_token"], own["sep_token"]) if text not in vocabulary]:
        raise StageError(f"{path}: the vocabulary lacks the token {missing[0]!r}")
    files = _finished(tokenizer, settings, known, own)
    add_around(tokenizer, first=[own["cls_token"]], last=[own["sep_token"]])
    return {**files, "tokenizer.json": tokenizer.to_str(pretty=False) + "\n"}


def _finished(
    tokenizer: Tokenizer,
    settings: TokenizerSettings,
    known: TokenizerClass,
    own: Mapping[str, str],
    *,
    raw: bool = False,
) -> dict[str, str]:
    """With the added tokens in their places, then special tokens that have no number yet. `own` are special tokens that
    the vocabulary names itself. With `raw`, added tokens are looked for in the text before it is normalized: the space
    that comes before a text would come before theirs."""
    for number, token in settings.added.items():
        added = _found_raw(token) if raw else token
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([added])
        found = tokenizer.token_to_id(token.content)
        if found != number:
            raise StageError(
                f"{settings.where}: the added token {token.content!r} has the number {number}, and the next free "
                f"number, or the number that it has in the vocabulary, is {found}"
            )
    special = {**own, **settings.special}
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special.values()])
    adds_bos, adds_eos = settings.flag("add_bos_token", known.adds_bos), settings.flag("add_eos_token", known.adds_eos)
    ends = [special.get(name) if adds else None for name, adds in (("bos_token", adds_bos), ("eos_token", adds_eos))]
    first = [*known.first, *_present([ends[0]])]
    if missing := [token for token in known.first if tokenizer.token_to_id(token) is None]:
        raise StageError(f"{settings.where}: every text begins with the token {missing[0]!r}, which it does not have")
    add_around(tokenizer, first=first, last=_present([ends[1]]))
    files = {"tokenizer.json": tokenizer.to_str(pretty=False) + "\n"}
    if not Path(settings.where).is_file():
        document = {**special, "add_bos_token": adds_bos, "add_eos_token": adds_eos}
        files[CONFIG] = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return files


def _found_raw(token: AddedToken) -> AddedToken:
    return AddedToken(
        token.content,
        special=token.special,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        single_word=token.single_word,
        normalized=False,
    )


def _present(texts: Sequence[str | None]) -> list[str]:
    return [text for text in texts if text is not None]


def _vocabulary(path: Path) -> dict[str, int]:
    vocabulary: dict[str, int] = {}
    for text, number in read_document(path).items():
        if type(number) is not int or not 0 <= number < 1 << 22:
            raise StageError(f"{path}: the token {text!r} has the number {number!r}")
        vocabulary[text] = number
    if len(set(vocabulary.values())) != len(vocabulary):
        raise StageError(f"{path}: two tokens have one number")
    return vocabulary


def _merges(path: Path) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        left, space, right = line.rstrip("\r").partition(" ")
        if not space or not left or not right or " " in right:
            raise StageError(f"{path} is truncated or damaged: line {number}, {line!r}, is no pair of tokens")
        merges.append((left, right))
    return merges


def _text(path: Path) -> str:
    refuse_placeholder(_head(path), path)
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise StageError(f"{path} is no text: {error}") from None


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(HEAD_BYTES)
