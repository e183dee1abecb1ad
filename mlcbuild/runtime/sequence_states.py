"""What a library keeps of sequences, which are known by numbers that the caller gives: keys and values in pages,
recurrent states, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlcbuild.runtime.kv_cache import PAGE_TOKENS, CacheSizes, pages_of
from mlcbuild.runtime.machine import Machine

_HISTORY = 1  # states of a sequence that are kept: the latest alone


class SequenceStates:
    """Room for `sequences` sequences on the library's device, with `tokens` tokens in all, if there are pages: these
    are of `PAGE_TOKENS`."""

    def __init__(self, machine: Machine, sizes: CacheSizes, *, sequences: int, tokens: int) -> None:
        self._machine = machine
        self._sizes = sizes
        self._begin = machine.function("vm.builtin.kv_state_begin_forward")
        self._end = machine.function("vm.builtin.kv_state_end_forward")
        shape = machine.shape
        self._begun: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # a pass: sequences, and tokens of each
        self._states: list[Any] = []  # in the order that entry functions take them
        if sizes.has_pages:
            cache = machine.entry("create_tir_paged_kv_cache")(
                shape(sequences),
                shape(max(pages_of(tokens), 1) * PAGE_TOKENS),
                shape(sizes.prefill_chunk),
                shape(PAGE_TOKENS),
                shape(int(sizes.slides)),
            )
            self._states.append(cache)
        if sizes.is_recurrent:
            self._states.append(machine.entry("create_rnn_state")(shape(sequences), shape(_HISTORY)))

    def add(self, sequence: int) -> None:
        """Begin an empty sequence."""
        self.take_back()
        for state in self._states:
            self._machine.function("vm.builtin.kv_state_add_sequence")(state, sequence)
        if self._sizes.slides:
            self._machine.function("vm.builtin.attention_kv_cache_enable_sliding_window_for_seq")(
                self._states[0], sequence, self._sizes.sliding_window, self._sizes.attention_sink
            )

    def remove(self, sequence: int) -> None:
        """Forget a sequence and free its room."""
        self.take_back()
        for state in self._states:
            self._machine.function("vm.builtin.kv_state_remove_sequence")(state, sequence)

    def forget_last(self, sequence: int, tokens: int) -> None:
        """Take the last tokens of a sequence back, not all of them, if the sizes say that it `can_forget`."""
        self.take_back()
        for state in self._states:
            self._machine.function("vm.builtin.kv_state_popn")(state, sequence, tokens)

    def begin_next(self, sequences: Sequence[int]) -> None:
        """Begin a pass of one more token of each sequence before `forward` is asked for it, while the device may still
        compute the one before: on the host alone. Nothing where tokens cannot be taken back.

        The cache copies what attention needs of this to the device in the pass itself. So `forward` has to wait until
        the pass before has ended.
        """
        if self._sizes.can_forget:
            self.take_back()
            self._begun = (tuple(sequences), (1,) * len(sequences))
            self._begin_pass(*self._begun)

    def take_back(self) -> None:
        """Forget the pass that was begun and is not to be."""
        if self._begun is None:
            return
        sequences, self._begun = self._begun[0], None
        for state in self._states:
            self._end(state)
        for sequence in sequences:
            self.forget_last(sequence, 1)

    def _begin_pass(self, sequences: Sequence[int], lengths: Sequence[int]) -> None:
        for state in self._states:
            self._begin(state, self._machine.shape(*sequences), self._machine.shape(*lengths))

    def forward(
        self, sequences: Sequence[int], lengths: Sequence[int], run: Callable[[Sequence[Any]], Sequence[Any]]
    ) -> Any:
        """What `run` computes of the states while so many tokens are added to each sequence. It returns its result and
        the states."""
        if self._begun != (tuple(sequences), tuple(lengths)):
            self.take_back()
            self._begin_pass(sequences, lengths)
        self._begun = None
        result, *self._states = run(self._states)
        for state in self._states:
            self._end(state)
        return result
