"""A tokenizer of words that are cut into the longest pieces of a vocabulary, from the left, as BERT has it."""

from __future__ import annotations

from collections.abc import Mapping

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from mlcbuild.errors import StageError

_LONGEST_WORD = 100  # in characters, as in BERT: a longer one is unknown


def word_piece_tokenizer(
    vocabulary: Mapping[str, int], *, unknown: str, lowercase: bool, strips_accents: bool | None, where: str
) -> Tokenizer:
    """Pieces that go on a word begin with `##`. Accents are left out with `strips_accents`, and where it is None, with
    `lowercase`. Raises StageError for a vocabulary without the token `unknown`."""
    if unknown not in vocabulary:
        raise StageError(f"{where}: the vocabulary lacks the token {unknown!r} for what is unknown")
    tokenizer = Tokenizer(
        models.WordPiece(
            vocab=dict(vocabulary),
            unk_token=unknown,
            continuing_subword_prefix="##",
            max_input_chars_per_word=_LONGEST_WORD,
        )
    )
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=strips_accents, lowercase=lowercase
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer
