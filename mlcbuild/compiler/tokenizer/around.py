"""The tokens that encoding adds before and after a text."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, processors


def add_around(tokenizer: Tokenizer, *, first: Sequence[str] = (), last: Sequence[str] = ()) -> None:
    """Let `tokenizer` add tokens that it has; of two texts, `last` comes after each."""
    if not first and not last:
        return
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*first, "$A", *last],
        pair=[*first, "$A", *last, "$B:1", *(f"{token}:1" for token in last)] if last else None,
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in sorted({*first, *last})],
    )
