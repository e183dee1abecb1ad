"""Results have the form that programs for OpenAI's batches read."""

from __future__ import annotations

import json

from mlcbuild.runtime.answer import FinishReason
from mlcbuild.runtime.batch.envelope import RejectedRequest
from mlcbuild.runtime.batch.request import BatchRequest, RequestDefaults, parse_request
from mlcbuild.runtime.batch.result import BatchResult, result_line


def answered(line: str) -> dict[str, object]:
    request = parse_request(line.encode(), 2, RequestDefaults(max_tokens=8))
    assert isinstance(request, BatchRequest)
    result = BatchResult(request=request, prompt_tokens=3, tokens=(7, 8), text="é\n", finish_reason=FinishReason.STOP)
    written = result_line(result)
    assert "\n" not in written
    document: dict[str, object] = json.loads(written)
    return document


def test_an_answer_of_a_chat() -> None:
    line = '{"custom_id": "a", "model": "m", "messages": [{"role": "user", "content": "x"}]}'
    message = {"role": "assistant", "content": "é\n"}
    assert answered(line) == {
        "id": "batch_req_2",
        "custom_id": "a",
        "response": {
            "status_code": 200,
            "body": {
                "id": "chatcmpl-2",
                "object": "chat.completion",
                "model": "m",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            },
        },
        "error": None,
    }


def test_a_continued_text() -> None:
    response = answered('{"prompt": "x"}')["response"]
    assert isinstance(response, dict)
    assert response["body"]["object"] == "text_completion"
    assert response["body"]["choices"] == [{"index": 0, "text": "é\n", "finish_reason": "stop"}]


def test_an_error() -> None:
    written = result_line(RejectedRequest(number=4, custom_id=None, message="no"))
    assert json.loads(written) == {
        "id": "batch_req_4",
        "custom_id": None,
        "response": None,
        "error": {"code": "invalid_request", "message": "no", "line": 4},
    }
