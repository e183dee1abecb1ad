"""How many entries of a model's vocabulary its tokenizer has: the rest of the table is padding.

ImportConfig writes the number into `vocabulary.json`, and Lower reads it there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from mlcbuild.compiler import json_values
from mlcbuild.errors import StageError

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """`active_size` is one more than the largest number of a token."""

    active_size: int


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`. Raises StageError for another file."""
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more specific
        raise StageError(f"{path} cannot be read: {error}") from error


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    numbers = tokenizer.get_vocab(with_added_tokens=True).values()
    return Vocabulary(active_size=max(numbers, default=-1) + 1)


def lowercases(tokenizer: Tokenizer) -> bool:
    """Whether a step of the tokenizer's normalizer lower-cases texts."""
    steps = [json.loads(tokenizer.to_str())["normalizer"]]
    for step in steps:
        if step is None:
            continue
        if step["type"] == "Lowercase" or step.get("lowercase") is True:
            return True
        steps += step.get("normalizers", ())
    return False


def write_vocabulary(vocabulary: Vocabulary, path: Path) -> None:
    json_values.write(vocabulary, path, version=VERSION)


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary in a `vocabulary.json`. Raises StageError for another file."""
    return json_values.read(Vocabulary, path, version=VERSION)
