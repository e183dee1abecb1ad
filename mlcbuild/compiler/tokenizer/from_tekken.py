"""A vocabulary in Mistral's form, tekken.json: tokens by rank as tiktoken has them, behind special tokens by number.

Format: mistralai/mistral-common, src/mistral_common/tokens/tokenizers/tekken.py (`ModelData`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from mlcbuild.compiler.models.config import read_document
from mlcbuild.compiler.tokenizer.cuts import Cut
from mlcbuild.compiler.tokenizer.from_tiktoken import check_ranks, ranked_tokenizer
from mlcbuild.errors import StageError

_MAX_TOKENS = 1 << 22


def tekken_tokenizer(path: Path) -> Tokenizer:
    """With its special tokens, which have the first numbers. Of the vocabulary, as many tokens are taken as the model
    has by the file. Raises StageError for a file that is damaged, or of a version that does not list special tokens."""
    document = read_document(path)
    config = document.get("config")
    sizes = {name: config.get(name) for name in _SIZES} if isinstance(config, dict) else {}
    pattern = config.get("pattern") if isinstance(config, dict) else None
    total, reserved = (size if type(size) is int else 0 for size in (sizes.get(name) for name in _SIZES))
    if not isinstance(pattern, str) or not 0 < reserved < total <= _MAX_TOKENS:
        raise StageError(f'{path} is no vocabulary of tekken: "config" says {config!r}')
    special = _special(document.get("special_tokens"), reserved, path)
    ranks = _ranks(document.get("vocab"), total - reserved, path)
    tokenizer = ranked_tokenizer(ranks, Cut(patterns=(pattern,), ignore_merges=True), where=str(path), special=special)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return tokenizer


_SIZES = ("default_vocab_size", "default_num_special_tokens")


def _special(stated: object, count: int, path: Path) -> Sequence[str]:
    """Texts of all special tokens; those that the file leaves out are named by their numbers, as Mistral names them."""
    if not isinstance(stated, list):
        raise StageError(
            f'{path} has no "special_tokens": it is of a version whose special tokens are in code',
            advice=("put the tokenizer.json of the same model beside it; transformers' AutoTokenizer saves one",),
        )
    texts = [f"<SPECIAL_{number}>" for number in range(count)]
    for entry in stated:
        number, text = (entry.get("rank"), entry.get("token_str")) if isinstance(entry, dict) else (None, None)
        if type(number) is not int or not 0 <= number < count or not isinstance(text, str) or not text:
            raise StageError(f"{path}: the special token {entry!r} has no number below {count}, or no text")
        texts[number] = text
    if len(set(texts)) != count:
        raise StageError(f"{path}: two special tokens have one text")
    return texts


def _ranks(stated: object, count: int, path: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    if not isinstance(stated, list) or len(stated) < count:
        held = len(stated) if isinstance(stated, list) else 0
        raise StageError(f"{path} is truncated or damaged: it holds {held} of {count} tokens")
    for entry in stated[:count]:
        try:
            content, rank = base64.b64decode(entry["token_bytes"], validate=True), int(entry["rank"])
        except (TypeError, KeyError, ValueError, binascii.Error):
            raise StageError(f"{path} is damaged: {entry!r} is no token with its rank") from None
        if ranks.setdefault(content, rank) != rank:
            raise StageError(f"{path}: the vocabulary has the token {content!r} twice")
    check_ranks(ranks, path)
    return ranks
