"""The result of a request: a line of JSON in the form of OpenAI's batch API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from mlcbuild.runtime.answer import FinishReason
from mlcbuild.runtime.batch.envelope import RejectedRequest
from mlcbuild.runtime.batch.request import BatchRequest, RequestKind

INVALID_REQUEST = "invalid_request"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """An answer: its text, its tokens, and why it ended."""

    request: BatchRequest
    prompt_tokens: int
    tokens: tuple[int, ...]
    text: str
    finish_reason: FinishReason


def result_line(result: BatchResult | RejectedRequest) -> str:
    """One line without its end. It says nothing of time or place: equal requests have equal lines."""
    if isinstance(result, RejectedRequest):
        return rejection_line(result)
    return response_line(result.request.number, result.request.custom_id, _body(result))


def response_line(number: int, custom_id: str | None, body: Mapping[str, object]) -> str:
    """The line for the request of a number that was answered."""
    return _line(number, custom_id, response={"status_code": 200, "body": dict(body)}, error=None)


def rejection_line(rejected: RejectedRequest) -> str:
    """The line for one that was not."""
    error = {"code": INVALID_REQUEST, "message": rejected.message, "line": rejected.number}
    return _line(rejected.number, rejected.custom_id, response=None, error=error)


def _line(number: int, custom_id: str | None, *, response: object, error: object) -> str:
    document = {"id": f"batch_req_{number}", "custom_id": custom_id, "response": response, "error": error}
    return json.dumps(document, ensure_ascii=False)


def _body(result: BatchResult) -> dict[str, object]:
    request = result.request
    is_chat = request.kind is RequestKind.CHAT
    said = {"message": {"role": "assistant", "content": result.text}} if is_chat else {"text": result.text}
    new = len(result.tokens)
    return {
        "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{request.number}",
        "object": "chat.completion" if is_chat else "text_completion",
        "model": request.model,
        "choices": [{"index": 0, **said, "finish_reason": str(result.finish_reason)}],
        "usage": {
            "prompt_tokens": result.prompt_tokens,
            "completion_tokens": new,
            "total_tokens": result.prompt_tokens + new,
        },
    }
