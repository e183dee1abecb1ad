"""A vocabulary in tiktoken's form: a line for each token, its bytes in base64 and its rank."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer, pre_tokenizers

from mlcbuild.compiler.tokenizer.byte_level import byte_level_tokenizer
from mlcbuild.compiler.tokenizer.cuts import Cut
from mlcbuild.errors import StageError

_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d{1,8}")


def is_tiktoken(path: Path) -> bool:
    """Whether a file begins with such a line. A SentencePiece model may have the same name."""
    with path.open("rb") as stream:
        return _LINE.fullmatch(stream.read(4096).partition(b"\n")[0].strip()) is not None


def read_ranks(path: Path) -> dict[bytes, int]:
    """Tokens by rank. Raises StageError for another file, and for ranks as `check_ranks` does."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            content = base64.b64decode(token, validate=True)
            if ranks.setdefault(content, int(rank)) != int(rank):
                raise ValueError("a token that is there twice")
        except (ValueError, binascii.Error) as error:
            raise StageError(
                f"{path} is truncated or damaged: line {number} is no token with its rank: {error}",
                advice=("fetch it again",),
            ) from None
    check_ranks(ranks, path)
    return ranks


def check_ranks(ranks: Mapping[bytes, int], path: Path) -> None:
    """Raise StageError unless each of the 256 bytes is a token, and ranks are the numbers from 0 on."""
    if sorted(ranks.values()) != list(range(len(ranks))) or any(bytes([byte]) not in ranks for byte in range(256)):
        raise StageError(
            f"{path} is truncated or damaged: its {len(ranks)} tokens have no ranks from 0 on, or lack a byte"
        )


def tiktoken_tokenizer(path: Path, cut: Cut) -> Tokenizer:
    """Without special tokens, which its user adds."""
    return ranked_tokenizer(read_ranks(path), cut, where=str(path))


def ranked_tokenizer(ranks: Mapping[bytes, int], cut: Cut, *, where: str, special: Sequence[str] = ()) -> Tokenizer:
    """Merges follow from ranks: two tokens may merge where their bytes are one, the best rank first. Texts of `special`
    have the first numbers, and no merge makes them; its user adds them as special tokens."""
    letters = {bytes([byte]): letter for byte, letter in _letters().items()}

    def spelled(token: bytes) -> str:
        return "".join(letters[token[index : index + 1]] for index in range(len(token)))

    merges: list[tuple[int, int, int, tuple[str, str]]] = []
    for token, rank in ranks.items():
        for split in range(1, len(token)):
            left, right = ranks.get(token[:split]), ranks.get(token[split:])
            if left is not None and right is not None:
                merges.append((rank, left, right, (spelled(token[:split]), spelled(token[split:]))))
    numbers = {text: number for number, text in enumerate(special)}
    tokens = {spelled(token): len(special) + rank for token, rank in ranks.items()}
    if both := sorted(numbers.keys() & tokens.keys()):
        raise StageError(f"{where}: {both[0]!r} is a special token and one of the vocabulary")
    return byte_level_tokenizer({**numbers, **tokens}, [pair for _, _, _, pair in sorted(merges)], cut, where=where)


def _letters() -> dict[int, str]:
    """The printable character behind which byte-level tokenizers have a byte: itself, if it is printable in Latin-1,
    else one of those from U+0100 on, in the order of bytes."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    letters = {byte: chr(byte) for byte in sorted(printable)}
    others = [byte for byte in range(256) if byte not in printable]
    letters |= {byte: chr(0x100 + number) for number, byte in enumerate(others)}
    assert set(letters.values()) == set(pre_tokenizers.ByteLevel.alphabet())
    return letters
