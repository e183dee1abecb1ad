"""The sizes that a library is made for, from a model's limits and a library's overrides.

They shape memory plans and configuration. Kernels depend on the sliding window alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from mlcbuild.compiler.models.architecture.window import SlidingWindow
from mlcbuild.compiler.models.config import MAX_CONTEXT, ConfigReader
from mlcbuild.errors import StageError
from mlcbuild.suggestions import known_values

DEFAULT_PREFILL_CHUNK = 2048
DEFAULT_MAX_BATCH = 128
DEFAULT_ENCODER_BATCH = 32  # texts, each as long as the longest: memory is planned for all of them
OVERRIDE_RANGES: dict[str, tuple[int, int]] = {
    "context_window_size": (-1, MAX_CONTEXT),
    "prefill_chunk_size": (1, MAX_CONTEXT),
    "max_batch_size": (1, 1 << 16),
    "sliding_window_size": (-1, MAX_CONTEXT),
    "attention_sink_size": (0, MAX_CONTEXT),
    "tensor_parallel_shards": (1, 1),
}
"""The least and greatest value of each override."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLimits:
    """How much text a model takes, in tokens.

    `max_position_embeddings` is -1 for a model that takes any length: what its sequences keep does not grow.
    `sliding_window` is how far back its attention looks; -1 for all of the text, None for a model that has no such
    window at all. An encoder takes a text at once, and none that is longer than it has positions for.
    `text_length` is how long a model's texts are, where that is less. `longest` is the longest context that a library
    may have; None for any.
    """

    max_position_embeddings: int
    sliding_window: int | None = None
    is_encoder: bool = False
    text_length: int | None = None
    longest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrarySizes:
    """Sizes in tokens, but for `max_batch_size` (sequences) and `tensor_parallel_shards`.

    `context_window_size` is -1 where a sliding window bounds the cache instead, and where nothing has to be bounded;
    `sliding_window_size` is -1 where there is none. Raises StageError for sizes that do not fit each other.
    """

    context_window_size: int
    sliding_window_size: int
    attention_sink_size: int
    prefill_chunk_size: int
    max_batch_size: int
    tensor_parallel_shards: int

    def __post_init__(self) -> None:
        if self.context_window_size == 0:
            raise StageError("the context_window_size is 0; it has to be -1 for none, or at least 1")
        if self.context_window_size != -1 and not 1 <= self.prefill_chunk_size <= self.context_window_size:
            raise StageError(
                f"the prefill_chunk_size is {self.prefill_chunk_size}; it has to be from 1 to the "
                f"context_window_size, which is {self.context_window_size}"
            )
        _ = self.window

    @property
    def window(self) -> SlidingWindow | None:
        """The window of attention; None if it sees all of the text."""
        if self.sliding_window_size == -1:
            return None
        return SlidingWindow(size=self.sliding_window_size, sink=self.attention_sink_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What a library may set apart from the model's own limits; None leaves a value as it is.

    Sizes are in tokens. -1 for `context_window_size` means none (with a sliding window), -1 for
    `sliding_window_size` means no window.
    """

    context_window_size: int | None = None
    prefill_chunk_size: int | None = None
    max_batch_size: int | None = None
    sliding_window_size: int | None = None
    attention_sink_size: int | None = None
    tensor_parallel_shards: int | None = None

    @staticmethod
    def parse(document: Mapping[str, object]) -> Overrides:
        """Overrides from JSON values by name. Raises StageError for an unknown name or a bad value."""
        known = tuple(field.name for field in fields(Overrides))
        for name in document:
            if name not in known:
                raise StageError(f'unknown override "{name}"', advice=(known_values(name, known),))
        reader = ConfigReader(document, "overrides")
        values = {
            name: reader.integer(name, low=low, high=high)
            for name, (low, high) in OVERRIDE_RANGES.items()
            if reader.has(name)
        }
        return Overrides(**values)


def library_sizes(limits: ContextLimits, overrides: Overrides, *, model_type: str) -> LibrarySizes:
    """The sizes of a library. Raises StageError for overrides that the model, or one another, do not allow."""
    window = _sliding_window(limits, overrides, model_type)
    length = limits.max_position_embeddings
    if limits.text_length is not None:
        length = limits.text_length if length == -1 else min(length, limits.text_length)
    context = _first(overrides.context_window_size, -1 if window != -1 else length)
    if context < 1 and window == -1 and limits.max_position_embeddings != -1:
        raise StageError(f"the context_window_size is {context}; only a model with a sliding window can do without one")
    if limits.longest is not None and not 1 <= context <= limits.longest:
        raise StageError(
            f"the override context_window_size is {context}; texts of a model of this configuration can have up to "
            f"{limits.longest} tokens"
        )
    if limits.is_encoder and context > limits.max_position_embeddings:
        raise StageError(
            f"the override context_window_size is {context}; the model has vectors for "
            f"{limits.max_position_embeddings} positions"
        )
    pieces = () if limits.is_encoder else (DEFAULT_PREFILL_CHUNK,)
    return LibrarySizes(
        context_window_size=context,
        sliding_window_size=window,
        attention_sink_size=0 if window == -1 else _first(overrides.attention_sink_size, 0),
        prefill_chunk_size=_first(
            overrides.prefill_chunk_size,
            min([*pieces, *(size for size in (context, window) if size > 0)]),
        ),
        max_batch_size=_first(
            overrides.max_batch_size, DEFAULT_ENCODER_BATCH if limits.is_encoder else DEFAULT_MAX_BATCH
        ),
        tensor_parallel_shards=_first(overrides.tensor_parallel_shards, 1),
    )


def _sliding_window(limits: ContextLimits, overrides: Overrides, model_type: str) -> int:
    asked = overrides.sliding_window_size
    if limits.sliding_window is None:
        if asked not in (None, -1):
            raise StageError(
                f'the override sliding_window_size is {asked}; a model of type "{model_type}" has no sliding window'
            )
        return -1
    if asked == 0:
        raise StageError("the override sliding_window_size is 0; it has to be -1 for none, or at least 1")
    return _first(asked, limits.sliding_window)


def _first(override: int | None, value: int) -> int:
    return value if override is None else override
