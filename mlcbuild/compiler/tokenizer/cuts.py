"""How a byte-level tokenizer cuts text before it merges: what llama.cpp calls a pre-tokenizer.

A GGUF file names the rule in `tokenizer.ggml.pre`; which names files of an architecture have, its family says. Cuts are
those of llama.cpp's `llm_tokenizer_bpe`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """`pattern` is a regular expression for a piece, "" for GPT-2's own rule; `digits`: each digit is cut off first;
    `ignore_merges`: a piece that is a token is not made by merging."""

    pattern: str = ""
    digits: bool = False
    ignore_merges: bool = False


_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBERS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2 = Cut()
GPT2_DIGITS = Cut(digits=True)
UP_TO_THREE_DIGITS = Cut(pattern=_WORDS.replace("NUMBERS", r"\p{N}{1,3}"), ignore_merges=True)  # Llama 3
ONE_DIGIT = Cut(pattern=_WORDS.replace("NUMBERS", r"\p{N}"))  # Qwen2
