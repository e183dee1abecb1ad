"""Text from a package: one prompt, tokens as they come, and how fast they came."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlcbuild.errors import UsageError
from mlcbuild.runtime.answer import Answer, FinishReason
from mlcbuild.runtime.chat_message import one_turn
from mlcbuild.runtime.engine import Engine, LoadProgress
from mlcbuild.runtime.logits import Array, Logits
from mlcbuild.runtime.package import ModelPackage
from mlcbuild.runtime.sampling import Sampler, Sampling
from mlcbuild.runtime.token_chooser import TokenChooser
from mlcbuild.runtime.tokenizer import PackageTokenizer


@dataclass(frozen=True, kw_only=True)
class GenerationStatistics:
    """Tokens and seconds of a generation. Of the prompt's tokens, `kept_tokens` were in the cache already. The first
    new token comes of the prefill; the others are decoded. Seconds are those of passes and of choosing tokens."""

    prompt_tokens: int
    kept_tokens: int = 0
    prefill_seconds: float
    decoded_tokens: int
    decode_seconds: float

    @property
    def prefill_tokens_per_second(self) -> float:
        return (self.prompt_tokens - self.kept_tokens) / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        return self.decoded_tokens / self.decode_seconds if self.decode_seconds else 0.0


class Generation:
    """An answer under way: iterate it for pieces of text. `answer` grows as they come.

    What the engine's sequence has of the prompt already is kept. The sequence needs room for `max_tokens` more.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: PackageTokenizer,
        prompt: list[int],
        *,
        max_tokens: int,
        sampler: Sampler,
        stop_strings: Sequence[str] = (),
        every_logit: bool = False,
    ) -> None:
        self.prompt = prompt
        self.answer = Answer(
            tokenizer,
            stop_tokens=engine.package.stop_token_ids,
            stop_strings=(*engine.package.stop_strings, *stop_strings),
            max_tokens=max_tokens,
        )
        self.stopped = False  # from outside
        self._prompt_logits: list[Logits | Array] = []
        self._engine = engine
        self._sampler = sampler
        self._chooser = TokenChooser(engine.machine)
        self._every_logit = every_logit
        self._kept = 0
        self._prefill_seconds = 0.0
        self._decode_seconds = 0.0
        self._decoded = 0
        self._pieces = self._generate()

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def __next__(self) -> str:
        return next(self._pieces)

    def stop(self) -> None:
        """End the answer before its next token, or between two pieces of the prompt. Another thread or a signal's
        handler may call it: the sequence stays whole."""
        self.stopped = True

    @property
    def prompt_logits(self) -> Array | None:
        """(vocabulary,) after the prompt, with `every_logit` (prompt, vocabulary) after each of its tokens; None until
        it was read to its end."""
        if not self._prompt_logits:
            return None
        rows = [each.numpy() if isinstance(each, Logits) else each for each in self._prompt_logits]
        return np.concatenate(rows) if self._every_logit else rows[0][0]

    @property
    def tokens(self) -> list[int]:
        """The tokens of the answer so far."""
        return self.answer.tokens

    @property
    def context_is_full(self) -> bool:
        """Whether the answer ended for want of room."""
        is_cut = self.answer.finish_reason is FinishReason.LENGTH and self._engine.cache_sizes.is_bounded
        return is_cut and len(self.prompt) + len(self.tokens) == self._engine.context_window_size

    @property
    def statistics(self) -> GenerationStatistics:
        return GenerationStatistics(
            prompt_tokens=len(self.prompt),
            kept_tokens=self._kept,
            prefill_seconds=self._prefill_seconds,
            decoded_tokens=self._decoded,
            decode_seconds=self._decode_seconds,
        )

    def _generate(self) -> Iterator[str]:
        start = time.perf_counter()
        token = self._chosen(self._prefill())
        if token is None:
            self._engine.machine.device.sync()
        self._prefill_seconds = time.perf_counter() - start
        while token is not None:
            if piece := self.answer.add(token):
                yield piece
            if self.answer.finish_reason is not None or self.stopped:
                break
            start = time.perf_counter()
            token = self._chosen(self._engine.decoding_pass(token))
            self._decode_seconds += time.perf_counter() - start
            self._decoded += 1
        if self.answer.finish_reason is None and (piece := self.answer.close()):
            yield piece

    def _chosen(self, logits: Logits | None) -> int | None:
        """The next token, if there is to be one."""
        if logits is None or self.answer.finish_reason is not None or self.stopped:
            return None
        chosen = self._chooser.begin_to_choose(logits, [self._sampler])
        if self.answer.room > 1:
            self._engine.look_ahead(chosen)  # in vain where the token ends the answer
        return chosen.numbers()[0]

    def _prefill(self) -> Logits | None:
        """The logits after the prompt; None where it was stopped before its end."""
        self._kept = self._engine.keep(self.prompt)
        rows: list[Logits | Array] = []
        for logits in self._engine.passes(self.prompt[self._kept :], every_token=self._every_logit):
            if self._every_logit:
                rows.append(logits.numpy())
            if self.stopped:
                return None
        self._prompt_logits = rows or [logits]
        return logits.last()


def generate(
    package: Path,
    prompt: str,
    *,
    raw: bool = False,
    system: str = "",
    max_tokens: int = 128,
    sampling: Sampling | None = None,
    stop_strings: Sequence[str] = (),
    every_logit: bool = False,
    threads: int = 0,
    loaded: LoadProgress = lambda _done, _total: None,
) -> Generation:
    """Generate text with a package: the answer to one turn, or with `raw` the continuation of a text.

    `max_tokens` 0 prefills alone. `threads` 0 takes free cores. Raises UsageError for a directory that is no package,
    an argument out of range, and a prompt that does not fit; LocalEnvironmentError where TVM does not load.
    """
    if max_tokens < 0:
        raise UsageError(f"the number of new tokens is {max_tokens}; it cannot be negative")
    tokenizer = PackageTokenizer(ModelPackage.open(package))
    ids = tokenizer.encode_raw(prompt) if raw else tokenizer.encode_chat(one_turn(prompt, system=system))
    engine = Engine(package, threads=threads, loaded=loaded)  # last: weights may take minutes to load
    if engine.cache_sizes.is_bounded:
        max_tokens = min(max_tokens, room_for_answer(len(ids), engine.context_window_size))
    engine.reset(capacity=len(ids) + max_tokens)
    sampler = Sampler(sampling or Sampling(), vocabulary=engine.active_vocab_size)
    return Generation(
        engine,
        tokenizer,
        ids,
        max_tokens=max_tokens,
        sampler=sampler,
        stop_strings=stop_strings,
        every_logit=every_logit,
    )


def room_for_answer(prompt_tokens: int, context: int) -> int:
    """How many tokens an answer can have. Raises UsageError for a prompt that leaves room for none."""
    if prompt_tokens >= context:
        raise UsageError(
            f"the prompt has {prompt_tokens} tokens, and the model's context is {context}",
            advice=("shorten the prompt, or build with a larger override of context_window_size",),
        )
    return context - prompt_tokens
