"""Byte-level tokenizers: text is cut, and each byte of a piece, behind a printable character, is merged with others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from mlcbuild.compiler.tokenizer.cuts import GPT2_PATTERN, Cut
from mlcbuild.errors import StageError


def byte_level_tokenizer(
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    cut: Cut,
    *,
    where: str,
    adds_prefix: bool = False,
) -> Tokenizer:
    """Without special tokens, which its user adds; `adds_prefix`: a space comes before a text without one. Raises
    StageError for merges of or into something else than tokens, and for a pattern that is none; `where` names the
    file."""
    try:
        model = models.BPE(vocab=dict(vocabulary), merges=list(merges), ignore_merges=cut.ignore_merges)
    except Exception as error:  # the library raises nothing more specific
        raise StageError(f"{where}: the vocabulary is damaged: {error}") from error
    tokenizer = Tokenizer(model)
    try:
        tokenizer.pre_tokenizer = byte_level(cut, adds_prefix=adds_prefix)
    except Exception as error:  # the library raises nothing more specific
        raise StageError(f"{where}: the pattern that cuts text is no regular expression: {error}") from error
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_level(cut: Cut, *, adds_prefix: bool = False) -> pre_tokenizers.PreTokenizer:
    """What cuts text as `cut` says, and then encodes bytes."""
    by_gpt2 = not cut.patterns or cut.patterns[-1] == GPT2_PATTERN  # the library has this rule beside the bytes
    patterns = cut.patterns[:-1] if by_gpt2 else cut.patterns
    steps: list[pre_tokenizers.PreTokenizer] = []
    if cut.digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    steps += [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=adds_prefix, use_regex=by_gpt2))
    return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
