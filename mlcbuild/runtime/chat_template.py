"""A chat template's conversations as text.

A template is Jinja code by a model's author. It is rendered in Jinja's immutable sandbox, with the names that
transformers gives it (`template_environment`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from mlcbuild.errors import StageError

Message = Mapping[str, str]  # "role" and "content"

# What templates may be given of a tokenizer, by the names in tokenizer_config.json (transformers'
# SPECIAL_TOKENS_ATTRIBUTES). A name without a token is undefined in the template.
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def special_tokens(tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """The special tokens that a tokenizer_config.json names, by name: each is a text, or an object with "content"."""
    found = {}
    for name in SPECIAL_TOKENS:
        value = tokenizer_config.get(name)
        if isinstance(value, Mapping):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    return found


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    tokens: Mapping[str, str] | None = None,
    add_generation_prompt: bool = True,
    clock: Callable[[], datetime] | None = None,
) -> str:
    """The text of a conversation. Raises StageError if the template is wrong or refuses the messages.

    `tokens` are those of `special_tokens`. Without a `clock` the template has no `strftime_now`, so the text does not
    depend on the day.
    """
    from mlcbuild.runtime.template_environment import environment

    try:
        return (
            environment(clock)
            .from_string(template)
            .render(
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **(tokens or {}),
            )
        )
    except Exception as error:  # a template is code, and can fail in every way
        reason = str(error) or type(error).__name__
        raise StageError(f"the chat template cannot be rendered: {reason}") from error
