"""Pre-tokenizers of byte-level tokenizers: pieces by a cut, each byte of them behind a printable character."""

from __future__ import annotations

from tokenizers import Regex, pre_tokenizers

from mlcbuild.compiler.tokenizer.cuts import GPT2_PATTERN, Cut


def byte_level(cut: Cut) -> pre_tokenizers.PreTokenizer:
    """What cuts text as `cut` says, and then encodes bytes."""
    by_gpt2 = not cut.patterns or cut.patterns[-1] == GPT2_PATTERN  # the library has this rule beside the bytes
    patterns = cut.patterns[:-1] if by_gpt2 else cut.patterns
    steps: list[pre_tokenizers.PreTokenizer] = []
    if cut.digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    steps += [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=by_gpt2))
    return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
