"""A sliding window of attention: which tokens each token sees.

ConfigureModel writes it beside a library's model, and Phase0 reads it, because kernels depend on it. A library's other
sizes come later.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlcbuild.compiler import json_values
from mlcbuild.errors import StageError

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow:
    """A token sees `size` tokens, itself among them: the first `sink` tokens of the text and, of the rest, the latest.

    Without a sink that is transformers' window. With one, a token beyond the window is as far from each token of the
    sink as the last token that still saw all of the text: what StreamingLLM computes one token at a time. So the
    results do not depend on how a text is cut into pieces. Raises StageError for a window that is none.
    """

    size: int
    sink: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.sink < self.size:
            raise StageError(
                f"the attention_sink_size is {self.sink}; it has to be smaller than the sliding_window_size, "
                f"which is {self.size}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    window: SlidingWindow | None


def write_window(window: SlidingWindow | None, path: Path) -> None:
    json_values.write(_Written(window=window), path, version=VERSION)


def read_window(path: Path) -> SlidingWindow | None:
    """The window in a file; None if attention sees all of the text. Raises StageError for another file."""
    return json_values.read(_Written, path, version=VERSION).window
