"""A message of a conversation."""

from __future__ import annotations

from dataclasses import dataclass

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """Who says what; `role` is one that the model's chat template knows."""

    role: str
    content: str


def one_turn(prompt: str, *, system: str = "") -> tuple[ChatMessage, ...]:
    """The conversation of one prompt, after a system message if it is not empty."""
    before = (ChatMessage(role=SYSTEM, content=system),) if system else ()
    return (*before, ChatMessage(role=USER, content=prompt))
