"""A `tokenizer.json` and `tokenizer_config.json` from the vocabulary that a GGUF file carries.

Two kinds of vocabulary are read: `gpt2` (byte-level BPE with merges; `tokenizer.ggml.pre` names how text is
cut first, see `tokenizer.cuts`) and `llama` (SentencePiece BPE with scores, byte fallback).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from mlcbuild.compiler.tokenizer.byte_level import byte_level
from mlcbuild.compiler.tokenizer.cuts import CUTS, Cut
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.errors import StageError
from mlcbuild.suggestions import known_values

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6

_SPACE = "\u2581"

# Texts of tokens that end an answer, whatever the metadata says: those of llama.cpp (`special_eog_ids` in
# src/llama-vocab.cpp). Files of many converters name `<|end_of_text|>` alone, and the model ends its turns otherwise.
_ENDS = frozenset(
    ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<EOT>", "_<EOT>", "[EOT]")
)


def tokenizer_files(file: GGUFFile, cuts: Mapping[str, Cut]) -> dict[str, str]:
    """Texts by file name; `cuts` are the model's own, beside those that all files may name. Raises StageError for a
    vocabulary of another kind, or a damaged one."""
    kind = file.string("tokenizer.ggml.model")
    adds_bos = kind == "llama"
    if kind == "gpt2":
        cut = _cut(file, cuts)
        tokenizer, adds_bos = _byte_level(file, cut), cut.adds_bos
    elif kind == "llama":
        tokenizer = _sentence_piece(file)
    else:
        raise StageError(f'{file.path}: the tokenizer is of the kind "{kind}"; "gpt2" and "llama" can be rebuilt')
    _add_special_tokens(file, tokenizer)
    configuration = _configuration(file, adds_bos_by_default=adds_bos)
    _add_template(tokenizer, configuration)
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


def _vocabulary(file: GGUFFile) -> dict[str, int]:
    tokens = file.strings("tokenizer.ggml.tokens")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise StageError(f"{file.path}: the vocabulary holds a token twice")
    return vocabulary


def _byte_level(file: GGUFFile, cut: Cut) -> Tokenizer:
    merges = [_merge(file, text) for text in file.strings("tokenizer.ggml.merges")]
    model = _bpe(file, vocab=_vocabulary(file), merges=merges, ignore_merges=cut.ignore_merges)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = byte_level(cut)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _cut(file: GGUFFile, cuts: Mapping[str, Cut]) -> Cut:
    name = file.string("tokenizer.ggml.pre", "default")
    known = {**CUTS, **cuts}
    if name not in known:
        raise StageError(
            f'{file.path}: the tokenizer cuts text by the rule "{name}", which is not known',
            advice=(known_values(name, known),),
        )
    return known[name]


def _bpe(file: GGUFFile, **arguments: Any) -> models.BPE:
    try:
        return models.BPE(**arguments)
    except Exception as error:  # the library raises nothing more specific
        raise StageError(f"{file.path}: the vocabulary is damaged: {error}") from error


def _merge(file: GGUFFile, text: str) -> tuple[str, str]:
    left, space, right = text.partition(" ")
    if not space:
        raise StageError(f"{file.path}: the vocabulary has the merge {text!r}, which joins nothing")
    return left, right


def _sentence_piece(file: GGUFFile) -> Tokenizer:
    vocabulary = _vocabulary(file)
    scores = file.floats("tokenizer.ggml.scores")
    kinds = file.integers("tokenizer.ggml.token_type")
    if not len(scores) == len(kinds) == len(vocabulary):
        raise StageError(f"{file.path}: tokens, scores and token types are not of one number")
    number = _token_id(file, "unknown", len(vocabulary), default=0)
    model = _bpe(
        file,
        vocab=vocabulary,
        merges=_merges_from_scores(vocabulary, scores, kinds),
        unk_token=None if number is None else file.strings("tokenizer.ggml.tokens")[number],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", _SPACE)]
    endings: list[decoders.Decoder] = [
        decoders.Replace(_SPACE, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if file.boolean("tokenizer.ggml.add_space_prefix", default=True):
        steps.insert(0, normalizers.Prepend(_SPACE))
        endings.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(endings)
    return tokenizer


def _merges_from_scores(vocabulary: dict[str, int], scores: list[float], kinds: list[int]) -> list[tuple[str, str]]:
    """SentencePiece keeps no merges: a pair may merge where the result is a token, best score first."""
    found: list[tuple[float, int, int, tuple[str, str]]] = []
    for token, number in vocabulary.items():
        if kinds[number] != _NORMAL:
            continue
        for split in range(1, len(token)):
            left, right = vocabulary.get(token[:split]), vocabulary.get(token[split:])
            if left is not None and right is not None:
                found.append((-scores[number], left, right, (token[:split], token[split:])))
    return [pair for _, _, _, pair in sorted(found)]


def _add_special_tokens(file: GGUFFile, tokenizer: Tokenizer) -> None:
    """Control tokens never come from text cut by rules; user-defined ones do, and are no secrets to the
    decoder."""
    kinds = file.integers("tokenizer.ggml.token_type")
    tokens = file.strings("tokenizer.ggml.tokens")
    if len(kinds) != len(tokens):
        raise StageError(f"{file.path}: tokens and token types are not of one number")
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind in (_CONTROL, _UNKNOWN)]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    defined = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _USER_DEFINED]
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in defined])


def _configuration(file: GGUFFile, *, adds_bos_by_default: bool) -> dict[str, object]:
    tokens = file.strings("tokenizer.ggml.tokens")
    configuration: dict[str, object] = {
        "add_bos_token": file.boolean("tokenizer.ggml.add_bos_token", default=adds_bos_by_default),
        "add_eos_token": file.boolean("tokenizer.ggml.add_eos_token", default=False),
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    for key, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        number = _token_id(file, name, len(tokens))
        if number is not None:
            configuration[f"{key}_token"] = tokens[number]
    if "tokenizer.chat_template" in file.metadata:
        configuration["chat_template"] = file.string("tokenizer.chat_template")
    return configuration


def _add_template(tokenizer: Tokenizer, configuration: dict[str, object]) -> None:
    """The tokens that encoding adds before and after a text."""
    bos, eos = (configuration.get(f"{key}_token") for key in ("bos", "eos"))
    first = [bos] if configuration["add_bos_token"] and isinstance(bos, str) else []
    last = [eos] if configuration["add_eos_token"] and isinstance(eos, str) else []
    if first or last:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*first, "$A", *last],
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in sorted({*first, *last})],
        )
