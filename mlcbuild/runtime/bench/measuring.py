"""Runs workloads on a model, and tells what they took.

Each phase is run once before it is timed: the first pass of a size makes room and loads kernels. A step is timed from
its tokens to the next tokens, the likeliest, chosen as `mlcbuild run` does it: that is what a caller waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from mlcbuild.errors import UsageError
from mlcbuild.runtime.batch.sequences import SequenceBatch
from mlcbuild.runtime.bench.call_clock import CallClock
from mlcbuild.runtime.bench.workload import CallTime, Phase, Speed, Workload
from mlcbuild.runtime.kv_cache import PAGE_TOKENS, pages_of
from mlcbuild.runtime.logits import Logits
from mlcbuild.runtime.model import Model
from mlcbuild.runtime.sampling import Sampler, Sampling
from mlcbuild.runtime.token_chooser import TokenChooser

_TURN_STEPS = 8


def measure(model: Model, workload: Workload, *, rounds: int) -> Speed:
    """Raises UsageError for a workload that the library has no room or no functions for."""
    (speed,) = measure_in_turn([model], workload, rounds=rounds)
    return speed


def measure_in_turn(models: Sequence[Model], workload: Workload, *, rounds: int) -> tuple[Speed, ...]:
    """What each of several models takes, so that whatever else changes on the machine meanwhile meets all of them.

    A turn is a prompt, or up to eight steps of decoding; where there are several models, a step before them is not
    counted, which finds the caches as another model left them. Raises UsageError as `measure` does.
    """
    for model in models:
        check(model, workload)
    steps = [_steps(model, workload) for model in models]
    for each in steps:
        next(each)()
    seconds: list[list[float]] = [[] for _ in models]
    while (left := rounds - len(seconds[0])) > 0:
        counted = min(left, _TURN_STEPS if workload.phase is Phase.DECODE else 1)
        for own, each in zip(seconds, steps, strict=True):
            if len(models) > 1 and workload.phase is Phase.DECODE:
                next(each)()
            own.extend(_seconds(next(each)) for _ in range(counted))
    return tuple(Speed(workload=workload, seconds=tuple(own)) for own in seconds)


def call_times(model: Model, workload: Workload) -> tuple[CallTime, ...]:
    """What each function took in a prefill, or in one step of decoding.

    Raises UsageError as `measure` does.
    """
    check(model, workload)
    steps = _steps(model, workload)
    next(steps)()
    step = next(steps)
    with CallClock(model.machine) as clock:
        step()
    return clock.times()


def check(model: Model, workload: Workload) -> None:
    """Raises UsageError for a workload that the library has no room or no functions for."""
    if model.cache_sizes.is_bounded and workload.capacity > model.context_window_size:
        raise UsageError(
            f"{workload.capacity} tokens of a sequence do not fit the model's context of {model.context_window_size}",
            advice=("ask for shorter prompts or contexts, or override context_window_size",),
        )
    if workload.batch > model.max_batch_size:
        raise UsageError(
            f"a batch of {workload.batch} is more than the library's {model.max_batch_size}",
            advice=("ask for smaller batches, or override max_batch_size",),
        )
    if not model.has_function("batch_decode"):
        raise UsageError("the library has no function batch_decode, so that it generates nothing")


def _steps(model: Model, workload: Workload) -> Iterator[Callable[[], object]]:
    """What is timed, one round after the other, without end: what it needs is done before it comes."""
    random = np.random.default_rng(1)
    prompts = {
        sequence: [int(token) for token in random.integers(0, model.active_vocab_size, workload.capacity)]
        for sequence in range(workload.batch)
    }
    alone = _alone if workload.batch == 1 else _together
    yield from alone(model, workload, prompts)


def _alone(model: Model, workload: Workload, prompts: Mapping[int, Sequence[int]]) -> Iterator[Callable[[], object]]:
    """By the functions for one sequence."""
    (prompt,) = prompts.values()

    def begin() -> None:
        model.reset(capacity=workload.capacity)
        if workload.context:
            model.prefill(prompt[: workload.context])

    rest, chooser, greedy = prompt[workload.context :], TokenChooser(model.machine), [Sampler(Sampling())]
    token = 0

    def prefill() -> None:
        *_, logits = model.passes(rest)
        chooser.choose(logits, greedy)

    def decode(number: int) -> None:
        nonlocal token
        chosen = chooser.begin_to_choose(model.decoding_pass(token if number else rest[0]), greedy)
        model.look_ahead(chosen)
        (token,) = chosen.numbers()

    yield from _rounds(workload, begin, prefill, decode)


def _together(model: Model, workload: Workload, prompts: Mapping[int, Sequence[int]]) -> Iterator[Callable[[], object]]:
    """By the functions for a batch."""
    room = pages_of(workload.capacity) * PAGE_TOKENS  # a page belongs to one sequence
    batch = SequenceBatch(model, sequences=workload.batch, tokens=workload.batch * room)
    rest = {sequence: prompt[workload.context :] for sequence, prompt in prompts.items()}
    chooser, greedy = TokenChooser(model.machine), Sampler(Sampling())
    tokens: dict[int, int] = {}
    begun = False

    def begin() -> None:
        nonlocal begun
        for sequence, prompt in prompts.items():
            if begun:
                batch.remove(sequence)
            batch.add(sequence)
            for _ in _read(model, batch, {sequence: prompt[: workload.context]}):
                pass
        model.machine.device.sync()
        begun = True

    def prefill() -> None:
        for logits, ends in _read(model, batch, rest):
            if ends:
                chooser.choose(logits, [greedy] * logits.rows)

    def decode(number: int) -> None:
        nonlocal tokens
        logits = batch.decoding_pass(tokens if number else {sequence: prompt[0] for sequence, prompt in rest.items()})
        chosen = chooser.begin_to_choose(logits, [greedy] * logits.rows)
        if number + 1 < workload.tokens:  # there is room for no more
            batch.look_ahead(list(rest), chosen)
        tokens = dict(zip(rest, chosen.numbers(), strict=True))

    yield from _rounds(workload, begin, prefill, decode)


def _read(model: Model, batch: SequenceBatch, prompts: Mapping[int, Sequence[int]]) -> Iterator[tuple[Logits, bool]]:
    """Prefills in passes of at most a chunk, with whether a prompt ends in it."""
    left = {sequence: list(prompt) for sequence, prompt in prompts.items() if prompt}
    while left:
        room, taken = model.prefill_chunk_size, {}
        for sequence in list(left):
            piece = left[sequence][:room]
            if not piece:
                break
            taken[sequence] = piece
            room -= len(piece)
            left[sequence] = left[sequence][len(piece) :]
            if not left[sequence]:
                del left[sequence]
        yield batch.prefilling_pass(taken), any(sequence not in left for sequence in taken)


def _rounds(
    workload: Workload,
    begin: Callable[[], object],
    prefill: Callable[[], object],
    decode: Callable[[int], object],
) -> Iterator[Callable[[], object]]:
    while True:
        begin()
        if workload.phase is Phase.PREFILL:
            yield prefill
        else:
            yield from (partial(decode, number) for number in range(workload.tokens))


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
