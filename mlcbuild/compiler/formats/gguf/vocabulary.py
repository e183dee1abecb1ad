"""The vocabulary of a GGUF file from a `tokenizer.json`: the inverse of `tokenizer.from_gguf`.

llama.cpp knows how text is cut by a name (`tokenizer.ggml.pre`) and ranks merges of a SentencePiece vocabulary by
scores of tokens. A tokenizer that does something else is refused: it would cut texts otherwise there.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from mlcbuild.compiler.formats.gguf.header import GGUFKey, KeyType, key
from mlcbuild.compiler.formats.gguf.pre_tokenizers import cut_name
from mlcbuild.compiler.models.config import read_document
from mlcbuild.compiler.tokenizer.from_pieces import SPACE
from mlcbuild.compiler.tokenizer.packaged_config import packaged_config
from mlcbuild.compiler.tokenizer.sentencepiece_model import PieceKind
from mlcbuild.compiler.tokenizer.vocabulary import read_tokenizer
from mlcbuild.errors import StageError
from mlcbuild.runtime.chat_template import special_tokens

_NAMES = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
_BERT_NAMES = {
    "cls_token": "cls",
    "sep_token": "seperator",
    "mask_token": "mask",  # the format's own spelling
    "pad_token": "padding",
    "unk_token": "unknown",
}
_NFC = (None, "NFC")  # llama.cpp does not normalize; texts are in this form but for rare ones
_NEVER = -1e6  # the score of a token that no merge makes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A tokenizer, its tokenizer.json, and tokenizer_config.json as a package has it; `where` names the file."""

    where: str
    tokenizer: Tokenizer
    document: Mapping[str, Any]
    configuration: Mapping[str, object]
    special: Mapping[str, int]  # tokens by names such as eos_token

    @property
    def model(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.document["model"]
        return found


def vocabulary_keys(folder: Path, *, size: int, config: Mapping[str, object]) -> tuple[GGUFKey, ...]:
    """The keys below `tokenizer`, for a vocabulary filled up to the `size` of the model's embedding. `config` is the
    model's config.json. Raises StageError for a tokenizer that llama.cpp does not have."""
    read = _read(folder, config)
    kind = read.model["type"]
    if kind == "WordPiece":
        own = _word_pieces(read, size)
    elif kind == "BPE":
        own = _byte_level(read, size) if _is_byte_level(read.document) else _pieces(read, size)
    else:
        raise StageError(
            f"{read.where} is a {kind} tokenizer, and GGUF files are written of BPE and WordPiece", advice=_ADVICE
        )
    special = [key(f"tokenizer.ggml.{name}_token_id", number) for name, number in _ids(read, kind)]
    return (*own, *special, *_ends_of_turns(folder, read), *_template(read))


_ADVICE = ("a model_package takes the tokenizer as it is",)


def _read(folder: Path, config: Mapping[str, object]) -> _Read:
    path = folder / "tokenizer.json"
    tokenizer, configuration = read_tokenizer(path), packaged_config(folder)
    special = {}
    for name, text in special_tokens(configuration).items():
        number = tokenizer.token_to_id(text)
        if number is not None:
            special[name] = number
    for name in _NAMES:
        stated = config.get(f"{name}_id")
        first = stated[0] if isinstance(stated, list) and stated else stated
        if name not in special and isinstance(first, int) and first >= 0:
            special[name] = first
    return _Read(
        where=str(path),
        tokenizer=tokenizer,
        document=json.loads(path.read_bytes()),
        configuration=configuration,
        special=special,
    )


def _is_byte_level(document: Mapping[str, Any]) -> bool:
    return any(step["type"] == "ByteLevel" for step in steps_of(document.get("pre_tokenizer"), "pretokenizers"))


def steps_of(step: Mapping[str, Any] | None, members: str) -> list[Mapping[str, Any]]:
    """The steps of a sequence of a tokenizer.json, or the one that there is."""
    if step is None:
        return []
    inner = step.get(members)
    return list(inner) if isinstance(inner, list) else [step]


def _byte_level(read: _Read, size: int) -> list[GGUFKey]:
    normalizers = {step["type"] for step in steps_of(read.document.get("normalizer"), "normalizers")}
    if normalizers - set(_NFC):
        told = ", ".join(sorted(normalizers - set(_NFC)))
        raise StageError(
            f"{read.where} changes texts before it cuts them ({told}), which llama.cpp does not", advice=_ADVICE
        )
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in read.model["merges"]]
    return [
        key("tokenizer.ggml.model", "gpt2"),
        key("tokenizer.ggml.pre", cut_name(read.document, where=read.where)),
        *_tokens(read, size),
        GGUFKey(name="tokenizer.ggml.merges", kind=KeyType.STRINGS, value=merges),
        *_added_around(read),
    ]


def _pieces(read: _Read, size: int) -> list[GGUFKey]:
    """A SentencePiece vocabulary: the better a merge, the higher the score of the token that it makes."""
    if not read.model.get("byte_fallback"):
        raise StageError(f"{read.where} has neither bytes nor pieces as its last resort", advice=_ADVICE)
    first, last = dict[str, int](), dict[str, int]()
    for rank, pair in enumerate(read.model["merges"]):
        made = "".join(pair.split(" ", 1) if isinstance(pair, str) else pair)
        first.setdefault(made, rank)
        last[made] = rank
    in_order = sorted(first, key=lambda text: first[text])
    for text, following in itertools.pairwise(in_order):
        if last[text] > first[following]:
            raise StageError(
                f"{read.where} ranks a merge that makes {text!r} behind one that makes {following!r}: no scores say so",
                advice=_ADVICE,
            )
    scores = [float(-first[text]) if text in first else _NEVER for text, _ in _vocabulary(read, size)]
    begins = read.tokenizer.encode("a", add_special_tokens=False).tokens
    return [
        key("tokenizer.ggml.model", "llama"),
        key("tokenizer.ggml.pre", "default"),
        *_tokens(read, size),
        GGUFKey(name="tokenizer.ggml.scores", kind=KeyType.FLOAT32S, value=scores),
        key("tokenizer.ggml.add_space_prefix", bool(begins) and begins[0].startswith(SPACE)),
        *_added_around(read),
    ]


def _word_pieces(read: _Read, size: int) -> list[GGUFKey]:
    """llama.cpp marks the beginning of a word, where BERT marks what goes on with one. It changes texts to lower case
    and leaves accents out."""
    normalizer = read.document.get("normalizer") or {}
    lowercase = normalizer.get("lowercase") is True
    strips = normalizer.get("strip_accents")
    if not lowercase or not (lowercase if strips is None else strips):
        raise StageError(
            f"{read.where} tells small letters from capitals, or has accents; llama.cpp does not", advice=_ADVICE
        )
    return [
        key("tokenizer.ggml.model", "bert"),
        key("tokenizer.ggml.pre", "default"),
        *_tokens(read, size, words=True),
    ]


def _vocabulary(read: _Read, size: int) -> list[tuple[str, PieceKind]]:
    """Tokens by number, up to the model's size; those that the tokenizer lacks are unused ones."""
    found: dict[int, tuple[str, PieceKind]] = {
        number: (text, PieceKind.NORMAL) for text, number in read.tokenizer.get_vocab(with_added_tokens=True).items()
    }
    bytes_ = bool(read.model.get("byte_fallback"))
    for number, (text, _) in found.items():
        if bytes_ and len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            found[number] = (text, PieceKind.BYTE)
    for number, token in read.tokenizer.get_added_tokens_decoder().items():
        found[number] = (token.content, PieceKind.CONTROL if token.special else PieceKind.USER_DEFINED)
    unknown = read.model.get("unk_token")
    place = read.tokenizer.token_to_id(unknown) if isinstance(unknown, str) else None
    if isinstance(unknown, str) and place is not None:
        found[place] = (unknown, PieceKind.UNKNOWN)
    if beyond := [number for number in found if number >= size]:
        raise StageError(f"{read.where} has the token {min(beyond)}, and the model's embedding {size} rows")
    return [found.get(number, (f"[PAD{number}]", PieceKind.UNUSED)) for number in range(size)]


def _tokens(read: _Read, size: int, *, words: bool = False) -> list[GGUFKey]:
    vocabulary = _vocabulary(read, size)
    texts = [_as_word(text, kind) if words else text for text, kind in vocabulary]
    return [
        GGUFKey(name="tokenizer.ggml.tokens", kind=KeyType.STRINGS, value=texts),
        GGUFKey(name="tokenizer.ggml.token_type", kind=KeyType.INT32S, value=[int(kind) for _, kind in vocabulary]),
    ]


def _as_word(text: str, kind: PieceKind) -> str:
    if kind is not PieceKind.NORMAL:
        return text
    return text[2:] if text.startswith("##") else f"{SPACE}{text}"


def _added_around(read: _Read) -> list[GGUFKey]:
    """Whether bos comes before a text and eos after it. Raises StageError for other tokens, unless the chat template
    writes them."""
    plain = read.tokenizer.encode("a", add_special_tokens=False).ids
    whole = read.tokenizer.encode("a").ids
    count = len(whole) - len(plain)
    begin = next(place for place in range(count + 1) if whole[place : place + len(plain)] == plain)
    before, after = whole[:begin], whole[begin + len(plain) :]
    adds = {"bos": before, "eos": after}
    found = []
    for name, numbers in adds.items():
        is_special = numbers == [read.special.get(f"{name}_token")]
        if numbers and not is_special and not _in_template(read, numbers):
            texts = " ".join(map(str, map(read.tokenizer.id_to_token, numbers)))
            raise StageError(f"{read.where} adds {texts} to each text, which no GGUF file says", advice=_ADVICE)
        found.append(key(f"tokenizer.ggml.add_{name}_token", is_special))
    return found


def _in_template(read: _Read, numbers: Sequence[int]) -> bool:
    template = read.configuration.get("chat_template")
    texts = [read.tokenizer.id_to_token(number) for number in numbers]
    return isinstance(template, str) and "".join(text for text in texts if text) in template


def _ids(read: _Read, kind: str) -> list[tuple[str, int]]:
    names = _BERT_NAMES if kind == "WordPiece" else _NAMES
    found = [(name, read.special[token]) for token, name in names.items() if token in read.special]
    if kind == "WordPiece":  # llama.cpp's older names for what comes around a text
        found += [
            (name, read.special[token])
            for token, name in (("cls_token", "bos"), ("sep_token", "eos"))
            if token in read.special
        ]
    return found


def _ends_of_turns(folder: Path, read: _Read) -> list[GGUFKey]:
    """The second token that ends an answer, by generation_config.json: llama.cpp has one for texts, one for turns."""
    path = folder / "generation_config.json"
    stated = read_document(path).get("eos_token_id") if path.is_file() else None
    numbers = [number for number in stated if isinstance(number, int)] if isinstance(stated, list) else []
    others = [number for number in numbers if number != read.special.get("eos_token")]
    return [key("tokenizer.ggml.eot_token_id", others[0])] if others and "eos_token" in read.special else []


def _template(read: _Read) -> list[GGUFKey]:
    template = read.configuration.get("chat_template")
    return [key("tokenizer.chat_template", template)] if isinstance(template, str) else []
