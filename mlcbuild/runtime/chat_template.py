"""A chat template's conversations as text.

A template is Jinja code by a model's author: it is rendered in Jinja's immutable sandbox, as transformers
does, with the names that transformers gives it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlcbuild.errors import StageError

Message = Mapping[str, str]  # "role" and "content"


def render(
    template: str,
    messages: Sequence[Message],
    *,
    bos_token: str = "",
    eos_token: str = "",
    add_generation_prompt: bool = True,
) -> str:
    """The text of a conversation. Raises StageError where the template is wrong or refuses the messages."""
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals["raise_exception"] = raise_exception
    try:
        return environment.from_string(template).render(
            messages=[dict(message) for message in messages],
            bos_token=bos_token,
            eos_token=eos_token,
            add_generation_prompt=add_generation_prompt,
        )
    except (jinja2.TemplateError, TypeError, ValueError, RecursionError) as error:
        raise StageError(f"the chat template cannot be rendered: {error}") from error
