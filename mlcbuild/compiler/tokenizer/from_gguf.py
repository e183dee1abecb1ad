"""A `tokenizer.json` and `tokenizer_config.json` from the vocabulary that a GGUF file carries.

`tokenizer.ggml.model` names its kind: `gpt2` (byte-level BPE with merges; `tokenizer.ggml.pre` names how text is cut
first, see `tokenizer.cuts`), `llama` (SentencePiece BPE), `t5` (SentencePiece Unigram) or `bert` (WordPiece).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tokenizers import AddedToken, Tokenizer

from mlcbuild.compiler.tokenizer.around import add_around
from mlcbuild.compiler.tokenizer.byte_level import byte_level_tokenizer
from mlcbuild.compiler.tokenizer.cuts import CUTS, Cut
from mlcbuild.compiler.tokenizer.from_pieces import SPACE, piece_tokenizer
from mlcbuild.compiler.tokenizer.sentencepiece_model import Piece, PieceKind, SentencePieceModel, check_pieces
from mlcbuild.compiler.tokenizer.word_pieces import word_piece_tokenizer
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.errors import StageError
from mlcbuild.suggestions import known_values

_CHARSMAP = "tokenizer.ggml.precompiled_charsmap"
_BERT = "bert"

# Texts of tokens that end an answer, whatever the metadata says: those of llama.cpp (`special_eog_ids` in
# src/llama-vocab.cpp). Files of many converters name `<|end_of_text|>` alone, and the model ends its turns otherwise.
_ENDS = frozenset(
    ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<EOT>", "_<EOT>", "[EOT]")
)


def tokenizer_files(file: GGUFFile, cuts: Mapping[str, Cut]) -> dict[str, str]:
    """Texts by file name; `cuts` are the model's own, beside those that all files may name. Raises StageError for a
    vocabulary of another kind, or a damaged one."""
    kind = file.string("tokenizer.ggml.model")
    adds_bos, adds_eos = kind in ("llama", _BERT), kind in ("t5", _BERT)
    if kind == "gpt2":
        cut = _cut(file, cuts)
        tokenizer, adds_bos = _byte_level(file, cut), cut.adds_bos
    elif kind in ("llama", "t5"):
        tokenizer = _sentence_piece(file, is_unigram=kind == "t5")
    elif kind == _BERT:
        tokenizer = _word_pieces(file)
    else:
        known = '"gpt2", "llama", "t5" and "bert"'
        raise StageError(f'{file.path}: the tokenizer is of the kind "{kind}"; {known} can be rebuilt')
    _add_special_tokens(file, tokenizer)
    names = _BERT_TOKENS if kind == _BERT else _TOKENS
    configuration = _configuration(file, names, adds_bos=adds_bos, adds_eos=adds_eos)
    first, last = (configuration.get(f"{name}_token") for name in list(names)[:2])
    add_around(
        tokenizer,
        first=[str(first)] if first is not None and configuration["add_bos_token"] else [],
        last=[str(last)] if last is not None and configuration["add_eos_token"] else [],
    )
    files = {
        "tokenizer.json": tokenizer.to_str(pretty=False) + "\n",
        "tokenizer_config.json": json.dumps(configuration, indent=2, ensure_ascii=False) + "\n",
    }
    if ends := _ends_of_answers(file):
        files["generation_config.json"] = json.dumps({"eos_token_id": ends}, indent=2) + "\n"
    return files


def _ends_of_answers(file: GGUFFile) -> list[int]:
    """The tokens that end an answer: of a text (eos), of a turn (eot), of a message (eom), and those of `_ENDS`."""
    tokens = file.strings("tokenizer.ggml.tokens")
    named = [_token_id(file, name, len(tokens)) for name in ("eos", "eot", "eom")]
    known = [number for number, token in enumerate(tokens) if token in _ENDS]
    return list(dict.fromkeys([number for number in named if number is not None] + known))


def _token_id(file: GGUFFile, name: str, count: int, *, default: int | None = None) -> int | None:
    """The number of a special token; None if there is none. Raises StageError for one beyond the vocabulary."""
    number = file.token_id(name, default)
    if number is not None and not 0 <= number < count:
        key = f"tokenizer.ggml.{name}_token_id"
        raise StageError(f'{file.path}: the metadata "{key}" is {number}; the vocabulary has {count} tokens')
    return number


def _byte_level(file: GGUFFile, cut: Cut) -> Tokenizer:
    vocabulary = {piece.text: number for number, piece in enumerate(_pieces(file))}
    merges = [_merge(file, text) for text in file.strings("tokenizer.ggml.merges")]
    return byte_level_tokenizer(vocabulary, merges, cut, where=str(file.path))


def _cut(file: GGUFFile, cuts: Mapping[str, Cut]) -> Cut:
    name = file.string("tokenizer.ggml.pre", "default")
    known = {**CUTS, **cuts}
    if name not in known:
        raise StageError(
            f'{file.path}: the tokenizer cuts text by the rule "{name}", which is not known',
            advice=(known_values(name, known),),
        )
    return known[name]


def _merge(file: GGUFFile, text: str) -> tuple[str, str]:
    left, space, right = text.partition(" ")
    if not space:
        raise StageError(f"{file.path}: the vocabulary has the merge {text!r}, which joins nothing")
    return left, right


def _sentence_piece(file: GGUFFile, *, is_unigram: bool) -> Tokenizer:
    """llama.cpp's defaults: BPE has the space before a text, and 0 for what is unknown; Unigram no space, and 2."""
    pieces = _pieces(file, scored=True)
    unknown = _token_id(file, "unknown", len(pieces), default=2 if is_unigram else 0)
    charsmap = _CHARSMAP if is_unigram and _CHARSMAP in file.metadata else ""
    model = SentencePieceModel(
        pieces=pieces,
        is_unigram=is_unigram,
        special={} if unknown is None else {"unk": unknown},
        charsmap=bytes(number & 0xFF for number in file.integers(charsmap)) if charsmap else b"",
        adds_prefix=file.boolean("tokenizer.ggml.add_space_prefix", default=not is_unigram),
        trims=is_unigram and file.boolean("tokenizer.ggml.remove_extra_whitespaces", default=False),
    )
    # The converter writes user-defined tokens with spaces as they are in a text: they are found there, as added tokens.
    return piece_tokenizer(model, where=str(file.path), keeps_user_defined=False)


def _word_pieces(file: GGUFFile) -> Tokenizer:
    """The converter marks the beginning of a word and leaves out BERT's mark of a piece that goes on one."""
    pieces = _pieces(file)
    texts = [_as_in_bert(piece) for piece in pieces]
    unknown = _token_id(file, "unknown", len(pieces), default=min(100, len(pieces) - 1)) or 0
    lowercase = file.boolean("tokenizer.ggml.normalizer.lowercase", default=True)
    key = "tokenizer.ggml.normalizer.strip_accents"
    return word_piece_tokenizer(
        {text: number for number, text in enumerate(texts)},
        unknown=texts[unknown],
        lowercase=lowercase,
        strips_accents=file.boolean(key, default=lowercase),
        where=str(file.path),
    )


def _as_in_bert(piece: Piece) -> str:
    if piece.kind in (PieceKind.CONTROL, PieceKind.UNKNOWN, PieceKind.USER_DEFINED):
        return piece.text
    return piece.text[1:] if piece.text.startswith(SPACE) else f"##{piece.text}"


def _pieces(file: GGUFFile, *, scored: bool = False) -> tuple[Piece, ...]:
    """The vocabulary. Tokens of types that llama.cpp does not know are normal ones."""
    texts, kinds = file.strings("tokenizer.ggml.tokens"), file.integers("tokenizer.ggml.token_type")
    scores = file.floats("tokenizer.ggml.scores") if scored else [0.0] * len(texts)
    if not len(texts) == len(kinds) == len(scores):
        raise StageError(f"{file.path}: tokens, scores and token types are not of one number")
    known = {int(kind): kind for kind in PieceKind}
    pieces = tuple(
        Piece(text=text, score=score, kind=known.get(kind, PieceKind.NORMAL))
        for text, kind, score in zip(texts, kinds, scores, strict=True)
    )
    check_pieces(pieces, str(file.path))
    return pieces


def _add_special_tokens(file: GGUFFile, tokenizer: Tokenizer) -> None:
    """Control tokens never come from text cut by rules; user-defined ones do, and are no secrets to the
    decoder."""
    pieces = _pieces(file)
    control = [piece.text for piece in pieces if piece.kind in (PieceKind.CONTROL, PieceKind.UNKNOWN)]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    defined = [piece.text for piece in pieces if piece.kind is PieceKind.USER_DEFINED]
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in defined])


# By their names in tokenizer_config.json: those in the metadata, and the number that a file without them means. The
# first two are those before and after a text.
_TOKENS: Mapping[str, tuple[tuple[str, ...], int | None]] = {
    "bos": (("bos",), None),
    "eos": (("eos",), None),
    "pad": (("padding",), None),
    "unk": (("unknown",), None),
}
_BERT_TOKENS: Mapping[str, tuple[tuple[str, ...], int | None]] = {
    "cls": (("cls", "bos"), 101),
    "sep": (("seperator", "eos"), 102),  # the format's own spelling
    "pad": (("padding",), None),
    "unk": (("unknown",), 100),
    "mask": (("mask",), None),
}


def _configuration(
    file: GGUFFile, names: Mapping[str, tuple[tuple[str, ...], int | None]], *, adds_bos: bool, adds_eos: bool
) -> dict[str, object]:
    tokens = file.strings("tokenizer.ggml.tokens")
    configuration: dict[str, object] = {
        "add_bos_token": file.boolean("tokenizer.ggml.add_bos_token", default=adds_bos),
        "add_eos_token": file.boolean("tokenizer.ggml.add_eos_token", default=adds_eos),
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    for name, (keys, default) in names.items():
        stated = next((key for key in keys if f"tokenizer.ggml.{key}_token_id" in file.metadata), keys[0])
        number = _token_id(file, stated, len(tokens), default=default)
        if number is not None:
            configuration[f"{name}_token"] = tokens[number]
    if "tokenizer.chat_template" in file.metadata:
        configuration["chat_template"] = file.string("tokenizer.chat_template")
    return configuration
