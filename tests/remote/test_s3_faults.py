"""The transport over S3 when the network or the server fails: each failure told for what it is, within its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.remote.s3.transport import S3Transport
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from tests.remote.fault_proxy import Fault, FaultProxy, Request, slow_down
from tests.remote.s3_world import FUNCTION, MIB, Taken, World, deadlines
from tests.remote.seaweed import ACCESS_KEY, SECRET_KEY

KEY = FUNCTION.of_bytes(b"an action")


def is_body(request: Request) -> bool:
    return request.method == "GET"


def is_part(request: Request) -> bool:
    return request.method == "PUT" and "partNumber=" in request.query


def is_completion(request: Request) -> bool:
    return request.method == "POST" and request.query.startswith("uploadId=")


def range_from(first: int) -> Callable[[Request], bool]:
    return lambda request: request.headers.get("range", "").startswith(f"bytes={first}-")


def through(world: World, proxy: FaultProxy, **settings: Any) -> S3Transport:
    settings.setdefault("deadlines", deadlines())
    return world.transport(endpoint=proxy.endpoint, **settings)


def calls_of(world: World, transport: S3Transport) -> dict[str, Callable[[], object]]:
    path, digest = world.file(1000)
    return {
        "missing": lambda: transport.missing([digest]),
        "download": lambda: transport.download(digest, Taken()),
        "upload": lambda: transport.upload(digest, path),
        "read_result": lambda: transport.read_result(KEY),
        "write_result": lambda: transport.write_result(KEY, b"result"),
    }


METHODS = ("missing", "download", "upload", "read_result", "write_result")


def error_of(call: Callable[[], object]) -> TransportError:
    with pytest.raises(TransportError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("method", METHODS)
def test_slow_down_is_passed_on_at_once_with_the_wait_that_the_server_asks(
    world: World, proxy: FaultProxy, method: str
) -> None:
    # mozilla/sccache#2821: a write that was told to slow down was lost for good.
    transport = through(world, proxy)
    proxy.faults.append(slow_down(7))
    error = error_of(calls_of(world, transport)[method])
    assert error.kind is ErrorKind.TRANSIENT
    assert error.retry_after == 7
    assert proxy.count() == 1, "whoever called tries again, not boto"
    calls_of(world, transport)[method]()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (429, "TooManyRequests", ErrorKind.TRANSIENT),
        (500, "InternalError", ErrorKind.TRANSIENT),
        (502, "BadGateway", ErrorKind.TRANSIENT),
        (504, "GatewayTimeout", ErrorKind.TRANSIENT),
        (400, "RequestTimeout", ErrorKind.TRANSIENT),
        (400, "BadDigest", ErrorKind.TRANSIENT),
        (403, "AccessDenied", ErrorKind.DENIED),
        (403, "RequestTimeTooSkewed", ErrorKind.DENIED),
        (401, "Unauthorized", ErrorKind.DENIED),
        (400, "AuthorizationHeaderMalformed", ErrorKind.DENIED),
        (405, "MethodNotAllowed", ErrorKind.UNUSABLE),
        (418, "Teapot", ErrorKind.UNUSABLE),
    ],
)
@pytest.mark.parametrize("method", ["download", "write_result"])
def test_each_answer_is_an_error_of_its_kind(
    world: World, proxy: FaultProxy, method: str, status: int, code: str, kind: ErrorKind
) -> None:
    proxy.faults.append(Fault(status=status, code=code, times=-1))
    error = error_of(calls_of(world, through(world, proxy))[method])
    assert error.kind is kind
    assert code in error.message
    assert "made up" not in error.message, "texts of servers may quote what was signed"


@pytest.mark.parametrize("method", METHODS)
def test_a_reset_is_transient(world: World, proxy: FaultProxy, method: str) -> None:
    transport = through(world, proxy)
    proxy.faults.append(Fault(reset=True))
    assert error_of(calls_of(world, transport)[method]).kind is ErrorKind.TRANSIENT
    assert proxy.count() == 1


@pytest.mark.parametrize("body", [b"<html>Log in to this network</html>", b"", b"\xff\xfe"])
def test_an_answer_that_is_no_s3_is_unusable(world: World, proxy: FaultProxy, body: bytes) -> None:
    proxy.faults.append(Fault(status=400, body=body, times=-1))
    assert error_of(lambda: through(world, proxy).write_result(KEY, b"x")).kind is ErrorKind.UNUSABLE


def test_a_page_in_place_of_a_blob_is_no_blob(world: World, proxy: FaultProxy) -> None:
    taken = Taken()
    proxy.faults.append(Fault(status=200, body=b"<html>Log in to this network</html>", times=-1))
    error = error_of(lambda: through(world, proxy).download(Digest("ab" * 32, 1000), taken))
    assert error.kind is ErrorKind.ITEM
    assert taken.pieces == []


@pytest.mark.parametrize("cut", [0, 1, 999_999])
def test_a_body_cut_short_is_transient_and_told_by_its_length(world: World, proxy: FaultProxy, cut: int) -> None:
    # boto repeats no body in any of its modes.
    transport = through(world, proxy)
    path, digest = world.file(1_000_000)
    transport.upload(digest, path)
    proxy.faults.append(Fault(wanted=is_body, cut=cut))
    error = error_of(lambda: transport.download(digest, Taken()))
    assert error.kind is ErrorKind.TRANSIENT
    taken = Taken()
    assert transport.download(digest, taken)
    assert taken.data == path.read_bytes()


def test_a_result_cut_short_is_no_result(world: World, proxy: FaultProxy) -> None:
    transport = through(world, proxy)
    transport.write_result(KEY, b"result" * 100)
    proxy.faults.append(Fault(wanted=is_body, cut=20))
    assert error_of(lambda: transport.read_result(KEY)).kind is ErrorKind.TRANSIENT


def test_wrong_bytes_pass_through_for_whoever_verifies(world: World, proxy: FaultProxy) -> None:
    transport = through(world, proxy)
    path, digest = world.file(1000)
    transport.upload(digest, path)
    proxy.faults.append(Fault(wanted=is_body, flip=True))
    taken = Taken()
    assert transport.download(digest, taken)
    assert taken.data != path.read_bytes()
    assert len(taken.data) == 1000


@pytest.mark.parametrize("fault", [{"cut": 100}, {"reset": True}, {"status": 503, "code": "SlowDown"}])
def test_a_range_that_fails_is_read_again_and_no_byte_comes_twice(
    world: World, proxy: FaultProxy, fault: dict[str, object]
) -> None:
    # bazelbuild/bazel#19005: a second attempt was written behind what the first had brought.
    transport = through(world, proxy, ranged_bytes=MIB, range_bytes=MIB)
    path, digest = world.file(6 * MIB + 1)
    transport.upload(digest, path)
    proxy.faults.extend(Fault(wanted=range_from(at), **fault) for at in (0, 3 * MIB))  # type: ignore[arg-type]
    taken = Taken()
    assert transport.download(digest, taken)
    assert taken.data == path.read_bytes()
    assert [each.hits for each in proxy.faults] == [1, 1]
    assert proxy.count("GET") == 7 + 2


def test_a_range_that_fails_for_ever_ends_the_download(world: World, proxy: FaultProxy) -> None:
    transport = through(world, proxy, ranged_bytes=MIB, range_bytes=MIB)
    path, digest = world.file(6 * MIB)
    transport.upload(digest, path)
    proxy.faults.append(Fault(wanted=range_from(MIB), cut=5, times=-1))
    taken = Taken()
    assert error_of(lambda: transport.download(digest, taken)).kind is ErrorKind.TRANSIENT
    assert taken.data == path.read_bytes()[:MIB]


def test_a_server_without_ranges_is_read_in_one_piece(world: World, proxy: FaultProxy) -> None:
    transport = through(world, proxy, ranged_bytes=MIB, range_bytes=MIB)
    path, digest = world.file(3 * MIB)
    transport.upload(digest, path)
    whole = Fault(wanted=lambda request: "range" in request.headers, status=200, body=path.read_bytes(), times=-1)
    proxy.faults.append(whole)
    for _ in range(2):
        taken = Taken()
        assert transport.download(digest, taken)
        assert taken.data == path.read_bytes()
    assert whole.hits <= 3, "asked for ranges once"


@pytest.mark.parametrize("method", METHODS)
def test_a_server_that_keeps_silent_is_left_after_the_longest_silence(
    world: World, proxy: FaultProxy, method: str
) -> None:
    # bazelbuild/bazel#11782 and others: a remote that hung held the build for ever.
    transport = through(world, proxy, deadlines=deadlines(idle=0.5, total=20))
    calls = calls_of(world, transport)
    proxy.faults.append(Fault(stall=0, times=-1))
    begin = time.monotonic()
    error = error_of(calls[method])
    assert error.kind is ErrorKind.TRANSIENT
    assert "no answer in time" in error.message
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("size", [200_000, 3 * MIB])
def test_a_body_that_stops_coming_is_left(world: World, proxy: FaultProxy, size: int) -> None:
    transport = through(world, proxy, ranged_bytes=MIB, range_bytes=MIB, deadlines=deadlines(idle=0.5, total=8))
    path, digest = world.file(size)
    transport.upload(digest, path)
    proxy.faults.append(Fault(wanted=is_body, stall=5000, times=-1))
    begin = time.monotonic()
    assert error_of(lambda: transport.download(digest, Taken())).kind is ErrorKind.TRANSIENT
    assert time.monotonic() - begin < 12


@pytest.mark.parametrize("method", METHODS)
def test_a_server_that_trickles_is_cut_off_at_the_deadline(world: World, proxy: FaultProxy, method: str) -> None:
    # pantsbuild/pants#14224: no silence is ever long enough for a time-out.
    calls = calls_of(world, through(world, proxy))
    calls["upload"]()
    calls["write_result"]()
    calls = calls_of(world, through(world, proxy, deadlines=deadlines(idle=20, total=1.5)))
    proxy.faults.append(Fault(trickle=0.2, times=-1))
    begin = time.monotonic()
    error = error_of(calls[method])
    assert error.kind is ErrorKind.TRANSIENT
    assert "did not end in time" in error.message
    assert time.monotonic() - begin < 6


def test_a_large_body_that_trickles_is_cut_off_too(world: World, proxy: FaultProxy) -> None:
    transport = through(world, proxy, ranged_bytes=MIB, range_bytes=MIB, deadlines=deadlines(idle=20, total=3))
    path, digest = world.file(3 * MIB)
    world.transport().upload(digest, path)
    proxy.faults.append(Fault(wanted=is_body, trickle=0.2, times=-1))
    begin = time.monotonic()
    assert error_of(lambda: transport.download(digest, Taken())).kind is ErrorKind.TRANSIENT
    assert time.monotonic() - begin < 8


@pytest.mark.parametrize("method", ["upload", "write_result"])
def test_a_write_whose_answer_was_lost_is_found_by_the_next_attempt(
    world: World, proxy: FaultProxy, method: str
) -> None:
    call = calls_of(world, through(world, proxy))[method]
    proxy.faults.append(Fault(lost_response=True))
    assert error_of(call).kind is ErrorKind.TRANSIENT
    assert call() is False
    assert len(world.keys()) == 1


@pytest.mark.parametrize("size", [1000, 2 * MIB])
def test_an_upload_damaged_on_its_way_is_not_kept(world: World, proxy: FaultProxy, size: int) -> None:
    transport = through(world, proxy)
    path, digest = world.file(size)
    proxy.faults.append(Fault(wanted=lambda request: request.method == "PUT", flip_upload=True))
    assert error_of(lambda: transport.upload(digest, path)).kind is ErrorKind.TRANSIENT
    assert world.keys() == {}
    assert transport.upload(digest, path)


@pytest.mark.parametrize("fault", [{"reset": True}, {"status": 500}, {"lost_response": True}, {"flip_upload": True}])
def test_a_part_that_fails_is_sent_again_alone(world: World, proxy: FaultProxy, fault: dict[str, object]) -> None:
    transport = through(world, proxy, multipart_bytes=5 * MIB, part_bytes=5 * MIB)
    path, digest = world.file(11 * MIB)
    proxy.faults.append(Fault(wanted=is_part, times=2, **fault))  # type: ignore[arg-type]
    assert transport.upload(digest, path)
    assert sum(is_part(each) for each in proxy.requests) == 3 + 2
    taken = Taken()
    assert transport.download(digest, taken)
    assert taken.data == path.read_bytes()
    assert world.unfinished() == 0


@pytest.mark.parametrize(
    "wanted", [is_part, is_completion, lambda request: is_part(request) and "partNumber=3" in request.query]
)
@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 403, "code": "AccessDenied"}, {"reset": True}])
def test_an_upload_in_parts_that_fails_leaves_nothing_behind(
    world: World, proxy: FaultProxy, wanted: Callable[[Request], bool], fault: dict[str, object]
) -> None:
    transport = through(world, proxy, multipart_bytes=5 * MIB, part_bytes=5 * MIB)
    path, digest = world.file(11 * MIB)
    proxy.faults.append(Fault(wanted=wanted, times=-1, **fault))  # type: ignore[arg-type]
    error = error_of(lambda: transport.upload(digest, path))
    assert error.kind is (ErrorKind.DENIED if fault.get("status") == 403 else ErrorKind.TRANSIENT)
    assert world.unfinished() == 0
    assert world.keys() == {}
    proxy.faults.clear()
    assert transport.upload(digest, path)


def test_where_aborting_fails_too_the_first_failure_is_told(world: World, proxy: FaultProxy) -> None:
    transport = through(world, proxy, multipart_bytes=5 * MIB, part_bytes=5 * MIB)
    path, digest = world.file(11 * MIB)
    proxy.faults.append(Fault(wanted=is_part, status=403, code="AccessDenied", times=-1))
    proxy.faults.append(Fault(wanted=lambda request: request.method == "DELETE", status=405, code="No", times=-1))
    error = error_of(lambda: transport.upload(digest, path))
    assert "AccessDenied" in error.message
    assert proxy.count("DELETE") == 1


def test_an_upload_in_parts_whose_last_answer_was_lost_is_found(world: World, proxy: FaultProxy) -> None:
    transport = through(world, proxy, multipart_bytes=5 * MIB, part_bytes=5 * MIB)
    path, digest = world.file(11 * MIB)
    lost = Fault(wanted=is_completion, lost_response=True)
    proxy.faults.append(lost)
    transport.upload(digest, path)
    assert lost.hits == 1
    assert transport.missing([digest]) == ()
    assert world.unfinished() == 0
    assert sum(is_part(each) for each in proxy.requests) == 3, "nothing was sent twice"


@pytest.mark.parametrize("method", ["upload", "write_result"])
def test_a_conflict_with_another_writer_is_tried_again(world: World, proxy: FaultProxy, method: str) -> None:
    proxy.faults.append(
        Fault(wanted=lambda request: request.method == "PUT", status=409, code="ConditionalRequestConflict", times=2)
    )
    assert calls_of(world, through(world, proxy))[method]() is True
    assert proxy.count("PUT") == 3


def test_a_conflict_at_the_end_of_an_upload_in_parts_sends_the_parts_again(world: World, proxy: FaultProxy) -> None:
    transport = through(world, proxy, multipart_bytes=5 * MIB, part_bytes=5 * MIB)
    path, digest = world.file(11 * MIB)
    proxy.faults.append(Fault(wanted=is_completion, status=409, code="ConditionalRequestConflict"))
    assert transport.upload(digest, path) is True
    assert sum(is_part(each) for each in proxy.requests) == 6
    assert world.unfinished() == 0


@pytest.mark.parametrize(
    ("header", "status", "code"),
    [
        ("if-none-match", 501, "NotImplemented"),
        ("x-amz-checksum-crc32", 400, "InvalidArgument"),
        ("x-amz-checksum-algorithm", 501, "NotImplemented"),
    ],
)
def test_what_an_endpoint_refuses_is_left_out_from_then_on(
    world: World, proxy: FaultProxy, header: str, status: int, code: str
) -> None:
    # boto/boto3#4392: stores that know none of the newer checksums.
    transport = through(world, proxy, multipart_bytes=5 * MIB, part_bytes=5 * MIB)
    refusal = Fault(wanted=lambda request: header in request.headers, status=status, code=code, times=-1)
    proxy.faults.append(refusal)
    for size in (1000, 2 * MIB, 11 * MIB):
        path, digest = world.file(size)
        assert transport.upload(digest, path)
        assert not transport.upload(digest, path)
        taken = Taken()
        assert transport.download(digest, taken)
        assert taken.data == path.read_bytes()
    hits = refusal.hits
    assert transport.write_result(KEY, b"first")
    assert not transport.write_result(KEY, b"second")
    assert transport.write_result(KEY, b"third", replace=True)
    assert transport.read_result(KEY) == b"third"
    assert refusal.hits == hits <= 4, "found out once for whole objects, once for parts"


def test_expired_credentials_are_looked_for_anew(
    world: World, proxy: FaultProxy, credentials: Callable[[str, str], None]
) -> None:
    # peak/s5cmd#678: an upload was lost to a token that had expired while somebody had a new one.
    old = "AKIAOLDOLDOLDOLDOLD1"
    credentials(old, SECRET_KEY)
    transport = through(world, proxy)
    expired = Fault(
        wanted=lambda request: old in request.headers["authorization"], status=400, code="ExpiredToken", times=-1
    )
    proxy.faults.append(expired)
    calls = calls_of(world, transport)
    for call in calls.values():
        error = error_of(call)
        assert error.kind is ErrorKind.DENIED or call is calls["missing"]
    assert error.advice == ("the credentials have expired: log in again",)
    hits = expired.hits
    credentials(ACCESS_KEY, SECRET_KEY)
    assert calls["missing"]()
    assert calls["upload"]()
    assert expired.hits <= hits + 2, "after a HEAD, boto asks for the bucket's region with the same credentials"
