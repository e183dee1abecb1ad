"""One answer: tokens go in, text that may be shown comes out, until something ends it."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from mlcbuild.runtime.stop_strings import TextUntilStop
from mlcbuild.runtime.tokenizer import PackageTokenizer


class FinishReason(enum.StrEnum):
    """Why an answer ended, in OpenAI's words."""

    STOP = "stop"  # a stop token or a stop string
    LENGTH = "length"  # as many tokens as were asked for, or as there was room for


class Answer:
    """`tokens` are those of the answer so far, without the one that stops it, and `text` is what was shown of them."""

    def __init__(
        self,
        tokenizer: PackageTokenizer,
        *,
        stop_tokens: frozenset[int],
        stop_strings: Sequence[str] = (),
        max_tokens: int,
    ) -> None:
        self.tokens: list[int] = []
        self.text = ""
        self.finish_reason = None if max_tokens else FinishReason.LENGTH
        self._stream = tokenizer.stream()
        self._until_stop = TextUntilStop(stop_strings)
        self._stop_tokens = stop_tokens
        self._max_tokens = max_tokens

    @property
    def room(self) -> int:
        """How many more tokens the answer can have."""
        return 0 if self.finish_reason is not None else self._max_tokens - len(self.tokens)

    def add(self, token: int) -> str:
        """The text that this token completes. Afterwards `finish_reason` says whether the answer has ended."""
        if token in self._stop_tokens:
            self.finish_reason = FinishReason.STOP
            return self.close()
        self.tokens.append(token)
        piece = self._until_stop.add(self._stream.add(token))
        if self._until_stop.stopped:
            self.finish_reason = FinishReason.STOP
        elif len(self.tokens) == self._max_tokens:
            self.finish_reason = FinishReason.LENGTH
            return self._shown(piece) + self.close()
        return self._shown(piece)

    def close(self) -> str:
        """What is left of the text, where the answer ends here."""
        left = self._until_stop.add(self._stream.finish())
        if self._until_stop.stopped:
            self.finish_reason = FinishReason.STOP
        return self._shown(left + self._until_stop.finish())

    def _shown(self, piece: str) -> str:
        self.text += piece
        return piece
