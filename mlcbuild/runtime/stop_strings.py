"""Text that ends where a stop string would begin.

Text is held back while it may be the beginning of a stop string, so that what was shown never has a part of one. Where
the text is cut does not depend on the pieces that it comes in: the first stop string that is complete ends it, of
several that are complete at the same character the longest.
"""

from __future__ import annotations

from collections.abc import Sequence


class TextUntilStop:
    """Pieces of text in, the text that may be shown out, until a stop string is complete."""

    def __init__(self, stop_strings: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stop_strings if stop)
        self._held = ""
        self.stopped = False

    def add(self, piece: str) -> str:
        """What can be shown now. After a stop string nothing can."""
        if self.stopped:
            return ""
        if not self._stops:
            return piece
        text = self._held + piece
        ends = [(found + len(stop), found) for stop in self._stops if (found := text.find(stop)) >= 0]
        if ends:
            self.stopped = True
            self._held = ""
            return text[: min(ends)[1]]
        held = max(self._overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """What was held back, when nothing more comes."""
        text, self._held = self._held, ""
        return text

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """The length of the longest end of `text` that a stop string begins with."""
        longest = min(len(text), len(stop) - 1)
        return next((length for length in range(longest, 0, -1) if text.endswith(stop[:length])), 0)
