"""Requests have exactly the bytes of the official protocol, and its answers are understood."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cache import wire
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.grpc import messages
from mlcbuild.cache.remote.grpc.address import GrpcAddress
from mlcbuild.cache.remote.grpc.messages import BlobAnswer, Capabilities, Status

A, B = Digest("a" * 64, 1), Digest("b" * 64, 300)
BLAKE3, SHA256 = DigestFunction.BLAKE3, DigestFunction.SHA256
SLOW_DOWN = (
    b"\x08\x08\x12\tslow down\x1a6\n(type.googleapis.com/google.rpc.RetryInfo"
    b"\x12\n\n\x08\x08\x02\x10\x80\xca\xb5\xee\x01"
)
DIGESTS = b"\x12D\n@<A>\x10\x01\x12E\n@<B>\x10\xac\x02"


def full(text: bytes) -> bytes:
    return text.replace(b"<A>", b"a" * 64).replace(b"<B>", b"b" * 64)


# What is expected here was written by Google's protobuf library from the official definitions.
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (messages.get_capabilities("main"), b"\n\x04main"),
        (
            messages.find_missing("main", map(messages.digest_item, (A, B)), BLAKE3),
            b"\n\x04main" + DIGESTS + b"\x18\t",
        ),
        (messages.find_missing("", map(messages.digest_item, (A, B)), SHA256), DIGESTS),
        (
            messages.batch_update("main", [messages.update_item(A, b"x"), messages.update_item(B, b"y")], BLAKE3),
            b"\n\x04main\x12I\nD\n@<A>\x10\x01\x12\x01x\x12J\nE\n@<B>\x10\xac\x02\x12\x01y(\t",
        ),
        (messages.batch_read("main", map(messages.digest_item, (A, B)), BLAKE3), b"\n\x04main" + DIGESTS + b" \t"),
        (messages.get_result("main", B, BLAKE3), b"\n\x04main\x12E\n@<B>\x10\xac\x020\t"),
        (
            messages.update_result("main", B, b"\x20\x03", BLAKE3),
            b"\n\x04main\x12E\n@<B>\x10\xac\x02\x1a\x02 \x03(\t",
        ),
        (messages.update_result("", B, b"", SHA256), b"\x12E\n@<B>\x10\xac\x02\x1a\x00"),
        (messages.read_stream("main/blobs/x/1"), b"\n\x0emain/blobs/x/1"),
        (
            messages.write_piece("main/uploads/u/blobs/x/1", 300, b"xyz", is_last=True),
            b"\n\x18main/uploads/u/blobs/x/1\x10\xac\x02\x18\x01R\x03xyz",
        ),
    ],
)
def test_requests_are_those_of_the_official_protocol(message: bytes, expected: bytes) -> None:
    assert message == full(expected)


@pytest.mark.parametrize(
    ("decoded", "expected"),
    [
        (
            Capabilities.decode(b'\n\x11\n\x02\x01\t\x12\x02\x08\x01 \x80\xf8\xff\x012\x02\x00\x01"\x02\x08\x02'),
            Capabilities(functions=frozenset({1, 9}), may_update_results=True, most_batched_bytes=4193280),
        ),
        (
            Capabilities.decode(b""),
            Capabilities(functions=frozenset(), may_update_results=False, most_batched_bytes=0),
        ),
        (messages.missing_blobs(full(DIGESTS)), [A, B]),
        (messages.read_data(b"R\x03xyz"), b"xyz"),
        (messages.committed_size(b"\x08\xac\x02"), 300),
        (Status.decode(SLOW_DOWN), Status(code=8, message="slow down", retry_after=2.5)),
        (
            messages.updated_blobs(
                full(b"\n\x8d\x01\nD\n@<A>\x10\x01\x12E" + SLOW_DOWN + b"\nI\nE\n@<B>\x10\xac\x02\x12\x00")
            ),
            [
                BlobAnswer(digest=A, content=b"", status=Status(code=8, message="slow down", retry_after=2.5)),
                BlobAnswer(digest=B, content=b"", status=Status()),
            ],
        ),
        (
            messages.read_blobs(full(b"\nK\nD\n@<A>\x10\x01\x12\x01x\x1a\x00\nK\nE\n@<B>\x10\xac\x02\x1a\x02\x08\x05")),
            [
                BlobAnswer(digest=A, content=b"x", status=Status()),
                BlobAnswer(digest=B, content=b"", status=Status(code=5)),
            ],
        ),
    ],
)
def test_answers_of_the_official_protocol_are_understood(decoded: Any, expected: Any) -> None:
    assert decoded == expected


@given(st.lists(st.integers(0, (1 << 64) - 1)), st.integers(0, 5))
def test_packed_numbers_and_single_ones_are_one_list(numbers: list[int], packed: int) -> None:
    tag = wire.varint(7 << 3)
    body = b"".join(map(wire.varint, numbers[:packed]))
    encoded = wire.bytes_field(7, body) + b"".join(tag + wire.varint(number) for number in numbers[packed:])
    assert wire.all_integers(wire.parse(encoded), 7) == numbers


@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_a_value_error(data: bytes) -> None:
    for decode in (
        Capabilities.decode,
        Status.decode,
        messages.missing_blobs,
        messages.updated_blobs,
        messages.read_blobs,
        messages.read_data,
        messages.committed_size,
    ):
        try:
            decode(data)
        except ValueError:
            pass


def test_resource_names_are_those_of_the_protocol() -> None:
    address = GrpcAddress.parse("grpcs://cache.example/team/a")
    assert str(address) == "grpcs://cache.example:443/team/a"
    assert address.blob_name(B, SHA256) == f"team/a/blobs/{B}"
    assert address.blob_name(B, BLAKE3) == f"team/a/blobs/blake3/{B}"
    assert address.upload_name(B, BLAKE3, "u") == f"team/a/uploads/u/blobs/blake3/{B}"
    nameless = GrpcAddress.parse("grpc://[::1]:8980")
    assert str(nameless) == "grpc://[::1]:8980"
    assert nameless.blob_name(B, SHA256) == f"blobs/{B}"
