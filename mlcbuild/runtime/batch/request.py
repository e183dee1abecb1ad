"""A request of a batch for text (`batch.envelope` has the form of lines).

A field that would change the answer and is not computed here is refused by its name.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlcbuild.errors import UsageError
from mlcbuild.runtime.batch.envelope import Envelope, RejectedRequest, parse_line, shown
from mlcbuild.runtime.chat_message import ChatMessage
from mlcbuild.runtime.sampling import Sampling
from mlcbuild.suggestions import known_values


class RequestKind(enum.StrEnum):
    """What a request asks for, by the path of OpenAI's API."""

    CHAT = "/v1/chat/completions"
    COMPLETION = "/v1/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDefaults:
    """What holds for requests that do not say otherwise. A request's seed is `seed` and the number of its line."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """`number` counts lines from 1. A chat has `messages`; else the `prompt` is a text to continue, or its tokens."""

    number: int
    custom_id: str | None
    model: str
    kind: RequestKind
    messages: tuple[ChatMessage, ...] = ()
    prompt: str | tuple[int, ...] = ""
    max_tokens: int
    sampling: Sampling
    stop: tuple[str, ...]


_FIELDS = (
    "messages",
    "prompt",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "seed",
    "stop",
    "model",
)
_WITHOUT_EFFECT = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "stream_options",
    "parallel_tool_calls",
)
# What is not computed → the values with which it changes nothing.
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "stream": (False,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "top_k": (-1, 0),
    "min_p": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
}


def parse_request(line: bytes, number: int, defaults: RequestDefaults) -> BatchRequest | RejectedRequest:
    """The request of a line, which says of itself what is wrong with it."""
    return parse_line(line, number, lambda envelope: _request(envelope, number, defaults))


def _request(envelope: Envelope, number: int, defaults: RequestDefaults) -> BatchRequest:
    url, body = envelope.url, envelope.body
    _check_names(body)
    kind = RequestKind.CHAT if "messages" in body else RequestKind.COMPLETION
    if "messages" in body and "prompt" in body:
        raise UsageError('a request has "messages" or "prompt", and not both')
    if "messages" not in body and "prompt" not in body:
        raise UsageError('a request needs "messages" to answer, or a "prompt" to continue')
    if url is not None and url != kind:
        known = " and ".join(f'"{path}"' for path in RequestKind)
        wanted = f'with "{"messages" if kind is RequestKind.CHAT else "prompt"}" it has to be "{kind}"'
        raise UsageError(f'"url" is {shown(url)}; {wanted if url in list(RequestKind) else f"{known} are known"}')
    limits = [_count(name, body[name]) for name in ("max_completion_tokens", "max_tokens") if name in body]
    if len(set(limits)) > 1:
        raise UsageError('"max_completion_tokens" and "max_tokens" differ, and mean the same')
    return BatchRequest(
        number=number,
        custom_id=envelope.custom_id,
        model=_text(body, "model", ""),
        kind=kind,
        messages=_messages(body["messages"]) if kind is RequestKind.CHAT else (),
        prompt=_prompt(body["prompt"]) if kind is RequestKind.COMPLETION else "",
        max_tokens=limits[0] if limits else defaults.max_tokens,
        sampling=Sampling(
            temperature=_number(body, "temperature", defaults.temperature),
            top_p=_number(body, "top_p", defaults.top_p),
            seed=_count("seed", body["seed"]) if "seed" in body else defaults.seed + number,
        ),
        stop=_stop(body["stop"]) if "stop" in body else defaults.stop,
    )


def _check_names(body: Mapping[str, Any]) -> None:
    for name, value in body.items():
        if name in _FIELDS or name in _WITHOUT_EFFECT:
            continue
        if name not in _NEUTRAL:
            raise UsageError(f'"{name}" is not known', advice=(known_values(name, _FIELDS),))
        if not any(type(value) in _alike(neutral) and value == neutral for neutral in _NEUTRAL[name]):
            neutral = " or ".join(shown(each) for each in _NEUTRAL[name])
            raise UsageError(f'"{name}" is not supported' + (f", except {neutral}" if neutral else ""))


def _alike(value: object) -> tuple[type, ...]:
    return (int, float) if type(value) is int else (type(value),)


def _messages(value: object) -> tuple[ChatMessage, ...]:
    if not isinstance(value, list) or not value:
        raise UsageError(f'"messages" is {shown(value)}; it has to be a list of messages')
    return tuple(_message(number, item) for number, item in enumerate(value, 1))


def _message(number: int, item: object) -> ChatMessage:
    where = f"message {number}"
    if not isinstance(item, dict):
        raise UsageError(f"{where} is {shown(item)}; it has to be a JSON object")
    if further := [name for name, value in item.items() if name not in ("role", "content") and value is not None]:
        raise UsageError(f'"{further[0]}" of {where} is not supported')
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or not role:
        raise UsageError(f'"role" of {where} is {shown(role)}; it has to be "system", "user" or "assistant"')
    if isinstance(content, list):
        content = "".join(_part(where, part) for part in content)
    if not isinstance(content, str):
        raise UsageError(f'"content" of {where} is {shown(content)}; it has to be a text')
    return ChatMessage(role=role, content=content)


def _part(where: str, part: object) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get("text") if isinstance(part, dict) else None
    if kind != "text" or not isinstance(text, str):
        raise UsageError(f"a part of {where} is {shown(part)}; only text is supported")
    return text


def _prompt(value: object) -> str | tuple[int, ...]:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(type(token) is int and token >= 0 for token in value):
        return tuple(value)
    raise UsageError(f'"prompt" is {shown(value)}; it has to be one text, or a list of token ids')


def _stop(value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise UsageError(f'"stop" is {shown(value)}; it has to be a text that is not empty, or a list of such')
    return tuple(texts)


def _text(body: Mapping[str, Any], name: str, default: str) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise UsageError(f'"{name}" is {shown(value)}; it has to be a text')
    return value


def _number(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name, default)
    if type(value) not in (int, float):
        raise UsageError(f'"{name}" is {shown(value)}; it has to be a number')
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f'"{name}" is too large') from None


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError(f'"{name}" is {shown(value)}; it has to be an integer that is not negative')
    return value
