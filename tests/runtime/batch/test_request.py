"""A line of a batch is a request, or says what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.runtime.batch.envelope import RejectedRequest
from mlcbuild.runtime.batch.request import BatchRequest, RequestDefaults, RequestKind, parse_request
from mlcbuild.runtime.chat_message import ChatMessage
from mlcbuild.runtime.sampling import Sampling

DEFAULTS = RequestDefaults(max_tokens=128, temperature=0.5, seed=100, stop=("x",))
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


def parsed(document: object) -> BatchRequest:
    found = parse_request(json.dumps(document).encode(), 3, DEFAULTS)
    assert isinstance(found, BatchRequest), found
    return found


def rejected(line: bytes | str | dict[str, Any]) -> RejectedRequest:
    text = json.dumps(line) if isinstance(line, dict) else line
    found = parse_request(text if isinstance(text, bytes) else text.encode(), 3, DEFAULTS)
    assert isinstance(found, RejectedRequest), found
    return found


def test_the_form_of_openais_batches_and_the_short_one_mean_the_same() -> None:
    fields = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief.", "name": None},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ],
        "max_completion_tokens": 7,
        "temperature": 1,
        "top_p": 0.9,
        "seed": 5,
        "stop": "end",
        "n": 1,
        "stream": False,
        "user": "somebody",
        "logit_bias": None,
    }
    whole = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": fields}
    assert parsed(whole) == parsed({"custom_id": "a", **fields})
    assert parsed(whole) == BatchRequest(
        number=3,
        custom_id="a",
        model="m",
        kind=RequestKind.CHAT,
        messages=(ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="ab")),
        max_tokens=7,
        sampling=Sampling(temperature=1.0, top_p=0.9, seed=5),
        stop=("end",),
    )


def test_what_a_request_does_not_say_is_the_default_and_its_line_gives_the_seed() -> None:
    assert parsed({"prompt": [1, 2]}) == BatchRequest(
        number=3,
        custom_id=None,
        model="",
        kind=RequestKind.COMPLETION,
        prompt=(1, 2),
        max_tokens=128,
        sampling=Sampling(temperature=0.5, seed=103),
        stop=("x",),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\xff{}", "the line is not UTF-8: it has byte 0xff at 0"),
        ("{", "the line is not JSON: Expecting property name enclosed in double quotes at column 2"),
        ("[]", "the line is []; it has to be a JSON object"),
        ("[" * 100_000, "the line cannot be read: maximum recursion depth exceeded"),
        ('{"prompt": "a", "seed": ' + "1" * 5000 + "}", "the line cannot be read: Exceeds the limit"),
        ('{"prompt": "a", "prompt": "b"}', '"prompt" is given twice'),
        ('{"prompt": "\\ud83d"}', "the line is not UTF-8: it has U+D83D"),
        ('{"custom_id": "\\ud83d", "prompt": ""}', '"custom_id" is not UTF-8: it has U+D83D'),
        ({"custom_id": 3}, '"custom_id" is 3; it has to be a text'),
        ({}, 'a request needs "messages" to answer, or a "prompt" to continue'),
        ({"prompt": "a", **CHAT}, 'a request has "messages" or "prompt", and not both'),
        ({"body": [], "url": ""}, '"body" is []; it has to be a JSON object'),
        ({"body": {}, "prompt": "a"}, '"prompt" stands beside "body"; put it into "body"'),
        ({"body": CHAT, "method": "GET"}, '"method" is "GET"; it has to be "POST"'),
        ({"body": CHAT, "url": "/v1/embeddings"}, '"url" is "/v1/embeddings"; "/v1/chat/completions" and'),
        ({"body": CHAT, "url": "/v1/completions"}, '"url" is "/v1/completions"; with "messages" it has to be'),
        ({**CHAT, "tools": [{}]}, '"tools" is not supported, except []'),
        ({**CHAT, "n": True}, '"n" is not supported, except 1'),
        ({**CHAT, "top_logprobs": 3}, '"top_logprobs" is not supported'),
        ({**CHAT, "max_token": 3}, '"max_token" is not known\n  known: '),
        ({**CHAT, "max_tokens": 1, "max_completion_tokens": 2}, '"max_completion_tokens" and "max_tokens" differ'),
        ({**CHAT, "max_tokens": -1}, '"max_tokens" is -1; it has to be an integer that is not negative'),
        ({**CHAT, "seed": 1.5}, '"seed" is 1.5; it has to be an integer'),
        ({**CHAT, "temperature": "hot"}, '"temperature" is "hot"; it has to be a number'),
        ({**CHAT, "temperature": -1}, "the temperature is -1.0; it has to be from 0"),
        ('{"prompt": "a", "temperature": NaN}', "the temperature is nan"),
        ({**CHAT, "temperature": 10**400}, '"temperature" is too large'),
        ({**CHAT, "top_p": 0}, "top_p is 0.0; it has to be above 0"),
        ({**CHAT, "stop": [""]}, '"stop" is [""]; it has to be a text that is not empty'),
        ({"messages": []}, '"messages" is []; it has to be a list of messages'),
        ({"messages": ["hi"]}, 'message 1 is "hi"; it has to be a JSON object'),
        ({"messages": [{"content": "a"}]}, '"role" of message 1 is null'),
        ({"messages": [{"role": "user"}]}, '"content" of message 1 is null; it has to be a text'),
        ({"messages": [{"role": "user", "content": "", "name": "a"}]}, '"name" of message 1 is not supported'),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            'a part of message 1 is {"type": "image_url"}; only text is supported',
        ),
        ({"prompt": ["a", "b"]}, '"prompt" is ["a", "b"]; it has to be one text, or a list of token ids'),
        ({"prompt": [True]}, '"prompt" is [true]; it has to be one text'),
    ],
)
def test_mistakes(line: bytes | str | dict[str, Any], message: str) -> None:
    assert rejected(line).message.startswith(message)


def test_a_rejected_request_keeps_its_name() -> None:
    assert rejected({"custom_id": "a", "prompt": 1}).custom_id == "a"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["custom_id", "body", "messages", "prompt", "stop", "seed", "n", "tools", "url", "max_tokens"])


@settings(deadline=None)
@given(st.dictionaries(NAMES, JSON, max_size=4))
def test_any_object_is_a_request_or_says_why_not(document: dict[str, Any]) -> None:
    parse_request(json.dumps(document).encode(), 1, DEFAULTS)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_line_is_a_request_or_says_why_not(line: bytes) -> None:
    assert isinstance(parse_request(line, 1, DEFAULTS), RejectedRequest)
