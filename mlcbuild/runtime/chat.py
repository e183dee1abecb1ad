"""A conversation in turns with a package, whose KV cache lasts from turn to turn.

Each turn renders the whole conversation through the chat template, as servers do. What its tokens have in common with
those in the cache is kept, and only the rest is prefilled: mostly the new message. A template may render earlier turns
otherwise than they were, such as without a model's thoughts. Then the cache goes back to where they differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlcbuild.errors import UsageError
from mlcbuild.runtime.answer import FinishReason
from mlcbuild.runtime.chat_message import ASSISTANT, SYSTEM, USER, ChatMessage
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.generate import Generation
from mlcbuild.runtime.sampling import Sampler, Sampling
from mlcbuild.runtime.tokenizer import PackageTokenizer

DEFAULT_CONTEXT = 8192  # the KV cache of a whole context may be larger than the machine's memory
_UNBOUNDED = 1 << 30  # tokens: a window slides over a text of any length, and a recurrence reads it


class Chat:
    """`messages` is what was said, without the system message. `ask` answers; a turn that fails changes nothing.

    Where the context is full, the oldest turns are dropped from what the model sees, down to half of the context;
    `dropped_turns` counts them. A message that does not fit alone is refused.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: PackageTokenizer,
        *,
        system: str = "",
        context_size: int | None = None,
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        stop_strings: Sequence[str] = (),
    ) -> None:
        """`context_size` bounds prompts with their answers, at most by the model's window; by default by the smaller of
        that and `DEFAULT_CONTEXT`. `max_tokens` bounds an answer; None is as long as there is room. Raises UsageError
        for a size out of range."""
        window = engine.context_window_size
        if context_size is not None and engine.cache_sizes.is_bounded and context_size > window:
            raise UsageError(
                f"the context of {context_size} tokens is larger than the model's, {window}",
                advice=("build with a larger override of context_window_size",),
            )
        self.system = system
        self.messages: list[ChatMessage] = []
        self.dropped_turns = 0
        bounded = engine.cache_sizes.is_bounded
        self.context_size = context_size or min(window, DEFAULT_CONTEXT) if bounded else _UNBOUNDED
        self._engine = engine
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._sampler = Sampler(sampling or Sampling(), vocabulary=engine.active_vocab_size)
        self._stop_strings = stop_strings
        engine.reset(capacity=self.context_size)

    @property
    def is_bounded(self) -> bool:
        """Whether the context has an end: a sliding window, or a recurrent state, has none."""
        return self.context_size != _UNBOUNDED

    @property
    def tokens(self) -> int:
        """How many tokens of the conversation are in the cache."""
        return self._engine.length

    def ask(self, prompt: str) -> Turn:
        """The answer to the next message, to be iterated.

        Raises UsageError for a message that does not fit, StageError for one that the chat template refuses.
        """
        asked = ChatMessage(role=USER, content=prompt)
        tokens, dropped = self._prompt([*self.messages, asked])
        room = self.context_size - len(tokens)
        if room < 1:
            raise UsageError(
                f"the message makes a prompt of {len(tokens)} tokens, and the context has {self.context_size}",
                advice=("shorten it",),
            )
        self.dropped_turns = dropped
        generation = Generation(
            self._engine,
            self._tokenizer,
            tokens,
            max_tokens=room if self._max_tokens is None else min(room, self._max_tokens),
            sampler=self._sampler,
            stop_strings=self._stop_strings,
        )
        return Turn(self, asked, generation)

    def undo(self) -> str | None:
        """Take the last turn back. Returns what was asked in it, None where there is no turn."""
        if not self.messages:
            return None
        asked = self.messages[-2]
        del self.messages[-2:]
        self.dropped_turns = min(self.dropped_turns, len(self.messages) // 2)
        return asked.content

    def reset(self) -> None:
        """Forget all turns; the system message stays."""
        self.messages.clear()
        self.dropped_turns = 0

    def _prompt(self, messages: Sequence[ChatMessage]) -> tuple[list[int], int]:
        """The tokens of the conversation up to the next answer, and how many turns at its beginning they lack."""
        before = (ChatMessage(role=SYSTEM, content=self.system),) if self.system else ()
        turns = len(messages) // 2
        dropped = self.dropped_turns
        tokens = self._tokenizer.encode_chat((*before, *messages[2 * dropped :]))
        if len(tokens) + self._wanted_room() <= self.context_size:
            return tokens, dropped
        # Down to a half, so that not every turn from here on has to drop another one and prefill all that is left.
        while len(tokens) > self.context_size // 2 and dropped < turns:
            dropped += 1
            tokens = self._tokenizer.encode_chat((*before, *messages[2 * dropped :]))
        return tokens, dropped

    def _wanted_room(self) -> int:
        """Tokens that an answer should have room for before older turns are dropped for it."""
        quarter = self.context_size // 4
        return quarter if self._max_tokens is None else min(quarter, self._max_tokens)


class Turn:
    """A message with its answer under way: iterate it for pieces of text. Once it has ended or was stopped, both are
    part of the conversation; a turn that was stopped before any text is not."""

    def __init__(self, chat: Chat, asked: ChatMessage, generation: Generation) -> None:
        self.generation = generation
        self._chat = chat
        self._asked = asked

    def __iter__(self) -> Iterator[str]:
        yield from self.generation
        text = self.generation.answer.text
        if text or not self.generation.stopped:
            self._chat.messages += [self._asked, ChatMessage(role=ASSISTANT, content=text)]

    @property
    def context_is_full(self) -> bool:
        """Whether the answer ended for want of room in the context."""
        generation = self.generation
        full = len(generation.prompt) + len(generation.tokens) >= self._chat.context_size
        return full and generation.answer.finish_reason is FinishReason.LENGTH
