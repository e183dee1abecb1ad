"""A batch with a package: requests in, results out in the same order, many computed at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from mlcbuild.errors import StageError, UsageError
from mlcbuild.runtime.answer import Answer
from mlcbuild.runtime.batch.envelope import RejectedRequest
from mlcbuild.runtime.batch.request import BatchRequest, RequestKind
from mlcbuild.runtime.batch.result import BatchResult
from mlcbuild.runtime.batch.scheduler import BatchScheduler, Decode, Prefill
from mlcbuild.runtime.batch.sequences import SequenceBatch
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.generate import room_for_answer
from mlcbuild.runtime.kv_cache import PAGE_TOKENS, pages_of, sequence_pages
from mlcbuild.runtime.logits import Array
from mlcbuild.runtime.sampling import Sampler
from mlcbuild.runtime.token_chooser import TokenChooser
from mlcbuild.runtime.tokenizer import PackageTokenizer

DEFAULT_TOTAL_TOKENS = 8192
KeepLogits = Callable[[int, Sequence[int], Array], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The most sequences at a time, and the most tokens that the KV cache holds of all."""

    max_batch_size: int
    max_total_tokens: int

    @staticmethod
    def of(engine: Engine, *, max_batch_size: int | None, max_total_tokens: int | None) -> BatchLimits:
        """With defaults: the library's batch, and what is long enough for `DEFAULT_TOTAL_TOKENS`.

        Raises UsageError for a larger batch than the library's.
        """
        most = engine.max_batch_size
        if max_batch_size is not None and max_batch_size > most:
            raise UsageError(
                f"--max-batch-size is {max_batch_size}, and the library's is {most}",
                advice=("build with a larger override of max_batch_size",),
            )
        return BatchLimits(
            max_batch_size=max_batch_size or most, max_total_tokens=max_total_tokens or DEFAULT_TOTAL_TOKENS
        )


@dataclass(kw_only=True)
class BatchTotals:
    """What a batch has done so far. Seconds are those of forward passes and choices of tokens."""

    requests: int = 0  # that have a result
    rejected: int = 0
    running: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.new_tokens


@dataclass(kw_only=True)
class _Running:
    place: int
    request: BatchRequest
    prompt: list[int]
    answer: Answer
    sampler: Sampler
    next_token: int = 0
    logits: list[Array] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class _Waiting:
    running: _Running
    pages: int


class BatchRun:
    """`totals` grows while `results` is iterated.

    `keep_logits` gets of each request its number, the tokens of its prompt, and the logits (vocabulary,) after the
    last of them; with `every_logit` (tokens, vocabulary), after each.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: PackageTokenizer,
        *,
        limits: BatchLimits,
        keep_logits: KeepLogits | None = None,
        every_logit: bool = False,
        after_step: Callable[[BatchTotals], None] = lambda _: None,
    ) -> None:
        self.totals = BatchTotals()
        self._after_step = after_step
        self._engine = engine
        self._tokenizer = tokenizer
        self._keep_logits = keep_logits
        self._every_logit = every_logit
        self._pages = pages_of(limits.max_total_tokens)
        self._limits = limits
        self._scheduler = BatchScheduler(
            max_sequences=limits.max_batch_size, max_pages=self._pages, chunk=engine.prefill_chunk_size
        )
        self._chooser = TokenChooser(engine.machine)
        self._sequences = SequenceBatch(engine, sequences=limits.max_batch_size, tokens=self._pages * PAGE_TOKENS)
        self._running: dict[int, _Running] = {}
        self._free = list(range(limits.max_batch_size - 1, -1, -1))
        self._waiting: _Waiting | None = None
        self._done: dict[int, BatchResult | RejectedRequest] = {}

    def results(self, requests: Iterable[BatchRequest | RejectedRequest]) -> Iterator[BatchResult | RejectedRequest]:
        """One of each request, in their order. Requests are asked for when there is room for them."""
        source = enumerate(requests)
        place = 0
        while True:
            self._begin_requests(source)
            while place in self._done:
                yield self._done.pop(place)
                place += 1
            step = self._scheduler.next_step()
            if step is None:
                return
            start = time.perf_counter()
            if isinstance(step, Prefill):
                self._prefill(step)
            else:
                self._decode(step)
            self.totals.seconds += time.perf_counter() - start
            self.totals.running = self._scheduler.running
            self._after_step(self.totals)

    def _begin_requests(self, source: Iterator[tuple[int, BatchRequest | RejectedRequest]]) -> None:
        while True:
            if self._waiting is None:
                self._waiting = self._next_waiting(source)
                if self._waiting is None:
                    return
            if not self._scheduler.has_room(self._waiting.pages):
                return
            sequence = self._free.pop()
            running = self._waiting.running
            self._scheduler.begin(sequence, prompt_tokens=len(running.prompt), pages=self._waiting.pages)
            self._sequences.add(sequence)
            self._running[sequence] = running
            self._waiting = None

    def _next_waiting(self, source: Iterator[tuple[int, BatchRequest | RejectedRequest]]) -> _Waiting | None:
        for place, request in source:
            if isinstance(request, BatchRequest):
                try:
                    return self._prepared(place, request)
                except (UsageError, StageError) as error:
                    request = RejectedRequest(number=request.number, custom_id=request.custom_id, message=str(error))
            self.totals.requests += 1
            self.totals.rejected += 1
            self._done[place] = request
        return None

    def _prepared(self, place: int, request: BatchRequest) -> _Waiting:
        """Raises UsageError for a prompt that does not fit, StageError for messages that the template refuses."""
        prompt = self._prompt(request)
        sizes = self._engine.cache_sizes
        most = request.max_tokens
        if sizes.is_bounded:
            most = min(most, room_for_answer(len(prompt), self._engine.context_window_size))
        pages = sequence_pages(sizes, len(prompt) + most)
        if pages > self._pages:
            raise UsageError(
                f"the prompt of {len(prompt)} tokens and an answer of up to {most} do not fit the KV cache, which "
                f"holds {self._limits.max_total_tokens}",
                advice=("ask for fewer tokens, or give a larger --max-total-tokens",),
            )
        answer = Answer(
            self._tokenizer,
            stop_tokens=self._engine.package.stop_token_ids,
            stop_strings=(*self._engine.package.stop_strings, *request.stop),
            max_tokens=most,
        )
        sampler = Sampler(request.sampling, vocabulary=self._engine.active_vocab_size)
        running = _Running(place=place, request=request, prompt=prompt, answer=answer, sampler=sampler)
        return _Waiting(running=running, pages=pages)

    def _prompt(self, request: BatchRequest) -> list[int]:
        if request.kind is RequestKind.CHAT:
            return self._tokenizer.encode_chat(request.messages)
        if isinstance(request.prompt, str):
            return self._tokenizer.encode_raw(request.prompt)
        beyond = [token for token in request.prompt if token >= self._engine.active_vocab_size]
        if beyond:
            raise UsageError(f"the prompt has token {beyond[0]}; tokens are 0 to {self._engine.active_vocab_size - 1}")
        return list(request.prompt)

    def _prefill(self, step: Prefill) -> None:
        pieces = {
            piece.sequence: self._running[piece.sequence].prompt[piece.begin : piece.end] for piece in step.pieces
        }
        self.totals.prompt_tokens += sum(len(piece) for piece in pieces.values())
        ends = [piece.is_last for piece in step.pieces]
        samplers = [
            self._sampler(piece.sequence) if is_end else None for piece, is_end in zip(step.pieces, ends, strict=True)
        ]
        if self._every_logit:
            tokens = []
            for piece, sampler, logits in zip(
                step.pieces, samplers, self._sequences.every_token_pass(pieces), strict=True
            ):
                tokens += self._chooser.choose(logits.last(), [sampler])
                if self._keep_logits is not None:
                    self._running[piece.sequence].logits.append(logits.numpy())
        else:
            together = self._sequences.prefilling_pass(pieces)
            tokens = self._chooser.choose(together, samplers) if any(ends) else [0] * len(ends)
            if self._keep_logits is not None and any(ends):
                for piece, row in zip(step.pieces, together.numpy(), strict=True):
                    self._running[piece.sequence].logits = [row.copy()]  # not the rows beside it
        for piece, token in zip(step.pieces, tokens, strict=True):
            if piece.is_last:
                self._tell_logits(self._running[piece.sequence])
                self._go_on(piece.sequence, token)

    def _tell_logits(self, running: _Running) -> None:
        if self._keep_logits is not None:
            logits = np.concatenate(running.logits) if self._every_logit else running.logits[0]
            self._keep_logits(running.request.number, running.prompt, logits)
            running.logits.clear()

    def _decode(self, step: Decode) -> None:
        logits = self._sequences.decoding_pass(
            {sequence: self._running[sequence].next_token for sequence in step.sequences}
        )
        chosen = self._chooser.begin_to_choose(logits, list(map(self._sampler, step.sequences)))
        if all(self._running[sequence].answer.room > 1 for sequence in step.sequences):
            self._sequences.look_ahead(step.sequences, chosen)  # in vain where one of the answers ends
        for sequence, token in zip(step.sequences, chosen.numbers(), strict=True):
            self._go_on(sequence, token)

    def _sampler(self, sequence: int) -> Sampler | None:
        """None where no token is to be chosen."""
        running = self._running[sequence]
        return running.sampler if running.answer.finish_reason is None else None

    def _go_on(self, sequence: int, token: int) -> None:
        running = self._running[sequence]
        answer = running.answer
        if answer.finish_reason is None:
            running.next_token = token
            answer.add(token)
            self.totals.new_tokens += 1
        if answer.finish_reason is None:
            return
        self._done[running.place] = BatchResult(
            request=running.request,
            prompt_tokens=len(running.prompt),
            tokens=tuple(answer.tokens),
            text=answer.text,
            finish_reason=answer.finish_reason,
        )
        self.totals.requests += 1
        self._scheduler.end(sequence)
        self._sequences.remove(sequence)
        del self._running[sequence]
        self._free.append(sequence)
