"""Text from a package: one prompt, tokens as they come, and how fast they came."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.errors import UsageError
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.package import ModelPackage
from mlcbuild.runtime.sampling import Sampler, Sampling
from mlcbuild.runtime.tokenizer import PackageTokenizer


@dataclass(frozen=True, kw_only=True)
class GenerationStatistics:
    """Tokens and seconds of a generation. The first new token comes of the prefill; the others are
    decoded."""

    prompt_tokens: int
    prefill_seconds: float
    decoded_tokens: int
    decode_seconds: float

    @property
    def prefill_tokens_per_second(self) -> float:
        return self.prompt_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        return self.decoded_tokens / self.decode_seconds if self.decode_seconds else 0.0


class Generation:
    """An answer under way: iterate it for pieces of text. `tokens` grows as they come."""

    def __init__(
        self, engine: Engine, tokenizer: PackageTokenizer, prompt: list[int], *, max_tokens: int, sampling: Sampling
    ) -> None:
        """Raises UsageError where the prompt leaves no room in the context."""
        if max_tokens < 1:
            raise UsageError(f"the number of new tokens is {max_tokens}; it has to be at least 1")
        window = engine.context_window_size
        if engine.sliding_window_size <= 0:
            if len(prompt) >= window:
                raise UsageError(
                    f"the prompt has {len(prompt)} tokens, and the model's context is {window}",
                    advice=("shorten the prompt, or build with a larger override of context_window_size",),
                )
            max_tokens = min(max_tokens, window - len(prompt))
        self.prompt = prompt
        self.tokens: list[int] = []
        self.context_is_full = False  # the answer ended for want of room
        self._engine = engine
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._sampler = Sampler(sampling)
        self._prefill_seconds = 0.0
        self._decode_seconds = 0.0
        self._decoded = 0
        self._pieces = self._generate()

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def __next__(self) -> str:
        return next(self._pieces)

    @property
    def statistics(self) -> GenerationStatistics:
        return GenerationStatistics(
            prompt_tokens=len(self.prompt),
            prefill_seconds=self._prefill_seconds,
            decoded_tokens=self._decoded,
            decode_seconds=self._decode_seconds,
        )

    def _generate(self) -> Iterator[str]:
        stops = self._engine.package.stop_token_ids
        stream = self._tokenizer.stream()
        self._engine.reset(capacity=len(self.prompt) + self._max_tokens)
        start = time.perf_counter()
        token = self._sampler.choose(self._engine.prefill(self.prompt))
        self._prefill_seconds = time.perf_counter() - start
        while True:
            if token in stops:
                break
            self.tokens.append(token)
            if piece := stream.add(token):
                yield piece
            if len(self.tokens) == self._max_tokens:
                window = self._engine.context_window_size
                self.context_is_full = len(self.prompt) + len(self.tokens) == window
                break
            start = time.perf_counter()
            token = self._sampler.choose(self._engine.decode(token))
            self._decode_seconds += time.perf_counter() - start
            self._decoded += 1
        if piece := stream.finish():
            yield piece


def generate(
    package: Path,
    prompt: str,
    *,
    raw: bool = False,
    max_tokens: int = 128,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    threads: int = 0,
) -> Generation:
    """Generate text with a package: the answer to one turn, or with `raw` the continuation of a text.

    `threads` 0 takes every core. Raises UsageError for a directory that is no package, an argument out of range, and a
    prompt that does not fit; LocalEnvironmentError where TVM does not load.
    """
    sampling = Sampling(temperature=temperature, top_p=top_p, seed=seed)
    tokenizer = PackageTokenizer(ModelPackage.open(package))
    ids = tokenizer.encode_raw(prompt) if raw else tokenizer.encode_chat(prompt)
    engine = Engine(package, threads=threads)  # last: weights may take minutes to load
    return Generation(engine, tokenizer, ids, max_tokens=max_tokens, sampling=sampling)
