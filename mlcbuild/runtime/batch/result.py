"""The result of a request: a line of JSON in the form of OpenAI's batch API."""

from __future__ import annotations

import json
from dataclasses import dataclass

from mlcbuild.runtime.answer import FinishReason
from mlcbuild.runtime.batch.request import BatchRequest, RejectedRequest, RequestKind

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
        document: dict[str, object] = {
            "id": f"batch_req_{result.number}",
            "custom_id": result.custom_id,
            "response": None,
            "error": {"code": INVALID_REQUEST, "message": result.message, "line": result.number},
        }
    else:
        document = {
            "id": f"batch_req_{result.request.number}",
            "custom_id": result.request.custom_id,
            "response": {"status_code": 200, "body": _body(result)},
            "error": None,
        }
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
