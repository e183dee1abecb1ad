"""A line of a batch of embeddings is a request, or says what is wrong with it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mlcbuild.runtime.batch.envelope import RejectedRequest
from mlcbuild.runtime.embedding.request import EmbeddingRequest, embedding_line, parse_embedding_request


def parsed(**fields: object) -> EmbeddingRequest | RejectedRequest:
    return parse_embedding_request(json.dumps(fields).encode(), 4)


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ("one", ("one",)),
        (["one", ""], ("one", "")),
        ([5, 6], ((5, 6),)),
        ([[5, 6], [7]], ((5, 6), (7,))),
    ],
)
def test_the_forms_of_openais_input(given: object, texts: tuple[object, ...]) -> None:
    wanted = EmbeddingRequest(number=4, custom_id="a", model="m", texts=texts)  # type: ignore[arg-type]
    assert parsed(custom_id="a", input=given, model="m", encoding_format="float", user="x") == wanted
    body = {"input": given, "model": "m"}
    assert parsed(custom_id="a", method="POST", url="/v1/embeddings", body=body) == wanted


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, '"input" is null; it has to be a text or its token ids, or a list of such'),
        ({"input": []}, '"input" is []'),
        ({"input": [1, "a"]}, '"input" is [1, "a"]'),
        ({"input": [[1], []]}, '"input" is [[1], []]'),
        ({"input": [-1]}, '"input" is [-1]'),
        ({"input": [True]}, '"input" is [true]'),
        ({"input": "a", "dimensions": 64}, '"dimensions" is not supported'),
        ({"input": "a", "encoding_format": "base64"}, '"encoding_format" is "base64"; it has to be "float"'),
        ({"input": "a", "url": "/v1/completions"}, '"url" is "/v1/completions"; it has to be "/v1/embeddings"'),
        ({"input": "a", "model": 5}, '"model" is 5; it has to be a text'),
    ],
)
def test_what_is_no_request_says_why(fields: dict[str, object], message: str) -> None:
    found = parsed(**fields)
    assert isinstance(found, RejectedRequest)
    assert message in found.message


def test_a_result_has_openais_form_and_numbers_that_are_the_same_float32() -> None:
    request = EmbeddingRequest(number=4, custom_id=None, model="m", texts=("a", "b"))
    vectors = np.array([[1 / 3, 1e-9], [-1, 0]], np.float32)
    line = embedding_line(request, vectors, tokens=(3, 4))
    body = json.loads(line)["response"]["body"]
    assert [(item["object"], item["index"]) for item in body["data"]] == [("embedding", 0), ("embedding", 1)]
    assert (np.array([item["embedding"] for item in body["data"]], np.float32) == vectors).all()
    assert "0.33333334" in line
    assert body["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
