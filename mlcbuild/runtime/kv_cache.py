"""How much of sequences a library keeps, by what it says of itself."""

from __future__ import annotations

from dataclasses import dataclass

PAGE_TOKENS = 16


def pages_of(tokens: int) -> int:
    """How many pages a sequence of that many tokens takes."""
    return -(-tokens // PAGE_TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSizes:
    """What a library says of its sequences' states, in tokens. `kind` is MLC-LLM's word for them. `context_window` is
    not positive where nothing bounds a text, and `sliding_window` where every token stays visible."""

    prefill_chunk: int
    sliding_window: int
    attention_sink: int
    context_window: int
    kind: str = "kv_cache"

    @property
    def has_pages(self) -> bool:
        """Whether keys and values are kept, so that a sequence takes more room the longer it gets."""
        return self.kind != "rnn_state"

    @property
    def is_recurrent(self) -> bool:
        """Whether there are states of a fixed size."""
        return self.kind in ("rnn_state", "hybrid")

    @property
    def slides(self) -> bool:
        return self.sliding_window > 0

    @property
    def is_bounded(self) -> bool:
        """Whether a text can be too long."""
        return self.context_window > 0 and not self.slides

    @property
    def can_forget(self) -> bool:
        """Whether the last tokens of a sequence can be taken back one by one."""
        return not self.slides and not self.is_recurrent

    def held(self, tokens: int) -> int:
        """The most tokens of a sequence of that length whose keys and values are held at a time."""
        if not self.has_pages:
            return 0
        return min(tokens, self.sliding_window + self.prefill_chunk) if self.slides else tokens


def sequence_pages(sizes: CacheSizes, tokens: int) -> int:
    """How many pages a sequence of that many tokens takes at a time, beside others. A window that slides lies across
    the boundaries of pages, at its sinks and at its beginning."""
    return pages_of(sizes.held(tokens)) + (2 if sizes.slides else 0)
