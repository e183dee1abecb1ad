"""A chat template in the fixed form that MLC-LLM's engine knows: roles, separators and a system text.

The form is found by rendering marked messages and looking at what stands between them, then proved by
building the same conversations from it (`prompt`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from mlcbuild.errors import StageError
from mlcbuild.runtime.chat_template import Message, render

_SYSTEM, _FIRST, _ANSWER, _SECOND, _BOS = "⟦system⟧", "⟦first⟧", "⟦answer⟧", "⟦second⟧", "⟦bos⟧"
_PLACEHOLDER = "{system_message}"
_ANY_DAY = datetime(2024, 7, 26)  # templates write the date before the messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """MLC-LLM's `conv_template`, without the fields for functions, which stay at their defaults."""

    name: str
    system_template: str = _PLACEHOLDER
    system_message: str = ""
    system_prefix_token_ids: tuple[int, ...] | None = None
    add_role_after_system_message: bool = True
    user: str = ""
    assistant: str = ""
    seps: tuple[str, ...] = ("",)  # after a user's message and after an answer, or one for both
    role_content_sep: str = ""
    role_empty_sep: str = ""
    stop_token_ids: tuple[int, ...] = ()

    def document(self) -> dict[str, object]:
        prefix = self.system_prefix_token_ids
        return {
            "name": self.name,
            "system_template": self.system_template,
            "system_message": self.system_message,
            "system_prefix_token_ids": None if prefix is None else list(prefix),
            "add_role_after_system_message": self.add_role_after_system_message,
            "roles": {"user": self.user, "assistant": self.assistant},
            "role_templates": {
                "user": "{user_message}",
                "assistant": "{assistant_message}",
                "tool": "{tool_message}",
            },
            "messages": [],
            "seps": list(self.seps),
            "role_content_sep": self.role_content_sep,
            "role_empty_sep": self.role_empty_sep,
            "stop_str": [],
            "stop_token_ids": list(self.stop_token_ids),
            "function_string": "",
            "use_function_calling": False,
        }

    def prompt(self, messages: Sequence[Message]) -> str:
        """The text of a conversation and of the answer's beginning, as MLC-LLM's engine puts it together."""
        system = self.system_message
        if messages and messages[0]["role"] == "system":
            system, messages = messages[0]["content"], messages[1:]
        text = head = self.system_template.replace(_PLACEHOLDER, system)
        for number, message in enumerate(messages):
            answer = message["role"] == "assistant"
            if number or self.add_role_after_system_message or not head:
                text += (self.assistant if answer else self.user) + self.role_content_sep
            text += message["content"] + self.seps[-1 if answer else 0]
        return text + self.assistant + self.role_empty_sep


def plain(*, bos_token_id: int | None, stop_token_ids: Sequence[int]) -> Conversation:
    """For a model without a template: text alone, which MLC-LLM calls LM."""
    return Conversation(
        name="LM",
        system_prefix_token_ids=None if bos_token_id is None else (bos_token_id,),
        stop_token_ids=tuple(stop_token_ids),
    )


def from_template(
    template: str,
    *,
    tokens: Mapping[str, str] | None = None,
    bos_token_id: int | None = None,
    stop_token_ids: Sequence[int] = (),
) -> Conversation | None:
    """The form of a template; None where the form cannot say the same as the template.

    `tokens` are the tokenizer's special tokens by name. A template that asks for the date gets none, so that a build
    gives the same on every day: most have a date of their own for this.
    """
    tokens = tokens or {}
    eos_token = tokens.get("eos_token", "")
    system = {"role": "system", "content": _SYSTEM}
    first = {"role": "user", "content": _FIRST}
    rest = [{"role": "assistant", "content": _ANSWER}, {"role": "user", "content": _SECOND}]
    try:
        marked = render(template, [first, *rest], tokens={**tokens, "bos_token": _BOS})
        # Where the first token is the template's only use of it, the engine adds it by number.
        by_number = bos_token_id is not None and marked.startswith(_BOS) and marked.count(_BOS) == 1
        given = {**tokens, "bos_token": ""} if by_number else tokens
        alone = render(template, [first], tokens=given)
        dialogue = render(template, [first, *rest], tokens=given)
    except StageError:
        return None
    try:
        with_system = render(template, [system, first, *rest], tokens=given)
    except StageError:
        with_system = ""
    found = _form(alone, dialogue, with_system, eos_token)
    if found is None or (found.prompt([first, *rest]) != dialogue and not _has_own_system(found)):
        return None
    if with_system and found.prompt([system, first, *rest]) != with_system:
        return None
    return replace(
        found,
        system_prefix_token_ids=(bos_token_id,) if by_number and bos_token_id is not None else None,
        stop_token_ids=tuple(stop_token_ids),
    )


def text_after_an_answer(template: str, *, tokens: Mapping[str, str]) -> str:
    """What a template writes after an answer, which is what its model writes to end one; "" if that cannot be told."""
    dialogue = [{"role": "user", "content": _FIRST}, {"role": "assistant", "content": _ANSWER}]
    try:
        text = render(template, dialogue, tokens=tokens, add_generation_prompt=False, clock=lambda: _ANY_DAY)
    except StageError:
        return ""
    return text.rpartition(_ANSWER)[2] if _ANSWER in text else ""


def _has_own_system(found: Conversation) -> bool:
    """Whether the form writes a system block for an empty message, where the template leaves the block
    out."""
    return not found.system_message and found.system_template != _PLACEHOLDER


def _form(alone: str, dialogue: str, with_system: str, eos_token: str) -> Conversation | None:
    parts = _between(alone, _FIRST)
    pieces = _between(dialogue, _FIRST, _ANSWER, _SECOND)
    if parts is None or pieces is None or parts[0] != pieces[0] or parts[1] != pieces[3]:
        return None
    before, middle, after, opening = pieces
    # Where the end of a text does not end a turn, turns may end with a line.
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(middle, after, strict=False))
    common = "".join(character for character, _ in pairs)
    line = common[: common.rfind("\n") + 1]
    user_end, assistant = _after_end_of_turn(middle, eos_token, line)
    answer_end, user = _after_end_of_turn(after, eos_token, line)
    if not before.endswith(user) or not opening.startswith(user_end):
        return None
    generation = opening.removeprefix(user_end)
    role = assistant.rstrip() if assistant.rstrip() and generation.startswith(assistant.rstrip()) else ""
    content_sep = assistant.removeprefix(role)
    if not role or not user.endswith(content_sep):
        role, content_sep = assistant, ""
        if not generation.startswith(role):
            return None
    form = Conversation(
        name="custom",
        user=user.removesuffix(content_sep) if content_sep else user,
        assistant=role,
        seps=(user_end,) if user_end == answer_end else (user_end, answer_end),
        role_content_sep=content_sep,
        role_empty_sep=generation.removeprefix(role),
    )
    return _with_system(form, default=before.removesuffix(user), user=user, with_system=with_system)


def _with_system(form: Conversation, *, default: str, user: str, with_system: str) -> Conversation | None:
    if _SYSTEM not in with_system:  # the template refuses a system message, or drops it
        return replace(form, system_template=default + _PLACEHOLDER)
    block = with_system[: with_system.index(_FIRST)]
    follows = block.endswith(user)
    head, _, tail = (block.removesuffix(user) if follows else block).partition(_SYSTEM)
    message = ""
    if len(default) >= len(head) + len(tail) and default.startswith(head) and default.endswith(tail):
        message = default[len(head) : len(default) - len(tail)]
    elif default:
        return None
    return replace(
        form,
        system_template=f"{head}{_PLACEHOLDER}{tail}",
        system_message=message,
        add_role_after_system_message=follows,
    )


def _after_end_of_turn(text: str, eos_token: str, line: str) -> tuple[str, str]:
    """Text between two messages, cut after `eos_token` and the line's end behind it, else after `line`."""
    match = re.match(rf".*?{re.escape(eos_token)}\n*", text, re.DOTALL) if eos_token else None
    end = match.end() if match else len(line)
    return text[:end], text[end:]


def _between(text: str, *marks: str) -> list[str] | None:
    """The pieces around marks that each occur once, in order."""
    pieces: list[str] = []
    for mark in marks:
        head, found, text = text.partition(mark)
        if not found or mark in text:
            return None
        pieces.append(head)
    return [*pieces, text]
