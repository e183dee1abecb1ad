"""`mlcbuild doctor remote` on a bucket of a real S3 server, and on one that lies, stalls, refuses or forgets."""

from __future__ import annotations

import dataclasses
import email.utils
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcbuild.doctor import remote
from tests.remote.doctor_world import Doctor, Outcome, without_figures
from tests.remote.fault_proxy import Fault, FaultProxy, Request, slow_down
from tests.remote.s3_world import World
from tests.remote.seaweed import ACCESS_KEY, SECRET_KEY

Snapshot = Callable[[str, str], None]
WRITING = ["blobs", "results", "conditions", "checksums", "parts", "throughput"]


@pytest.fixture
def doctor(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    folder = tmp_path / "alone"
    folder.mkdir()
    # How fast things go beside other tests is nobody's concern.
    for name, value in {"BIG_BYTES": 2 << 20, "_SLOW_PACE": 0, "_FAR_SECONDS": 60.0}.items():
        monkeypatch.setattr(remote, name, value)
    return Doctor(folder=folder, monkeypatch=monkeypatch, capsys=capsys)


def settings(world: World, endpoint: str = "") -> dict[str, str]:
    return {
        "MLCBUILD_REMOTE": f"s3://{world.bucket}/{world.prefix}",
        "MLCBUILD_REMOTE_ENDPOINT": endpoint or world.server.endpoint,
        "MLCBUILD_REMOTE_REGION": "us-east-1",
        "MLCBUILD_REMOTE_ROLE": "read-write",
    }


def test_a_healthy_bucket_is_tried_whole_and_left_as_it_was(doctor: Doctor, world: World) -> None:
    code, said = doctor.text("remote", **settings(world))
    assert code == 0, said
    assert without_figures(said.replace(world.prefix, "PREFIX")).splitlines()[:13] == [
        "remote s3://of-the-tests/PREFIX",
        "  ok       credentials       the credentials file of the AWS tools, profile default",
        "  ok       lookups           N s each, at most N s; the first one, including its connection, N s",
        "  ok       clock             within N s of ours",
        "  ok       digest function   blake3, which is part of every key",
        "  ok       blobs             written in N s, found, and read back",
        "  ok       results           written, and read back",
        "  ok       conditions        a conditional write does not replace an existing object",
        "  ok       checksums         an upload with a wrong checksum is rejected",
        "  ok       parts             three parts, joined in N s",
        "  ok       throughput        up N MB/s, down and verified N MB/s (N MB)",
        "  ok       retries           none in 16 requests",
        "  ok       left behind       nothing: 7 objects were removed",
    ]
    assert world.keys() == {}
    assert world.unfinished() == 0


def test_who_may_only_read_writes_nothing(doctor: Doctor, world: World, proxy: FaultProxy) -> None:
    said = doctor(**settings(world, proxy.endpoint) | {"MLCBUILD_REMOTE_ROLE": "read"})
    assert said.code == 0
    assert said.verdict("writing") == "skipped"
    assert {method for method, _ in proxy.counts()} == {"GET", "HEAD"}


def test_a_namespace_is_written_to_and_what_lies_around_it_is_read(
    doctor: Doctor, world: World, proxy: FaultProxy
) -> None:
    code, said = doctor.text("remote", **settings(world, proxy.endpoint) | {"MLCBUILD_REMOTE_NAMESPACE": "pull/12"})
    assert code == 0
    assert f"remote s3://{world.bucket}/{world.prefix}/namespaces/pull/12\n" in said
    assert said.count("skipped  writing           not tested: results are sent to the namespace") == 1
    written = [path for method, path in proxy.counts() if method in ("PUT", "POST", "DELETE")]
    assert written
    assert all(f"/{world.prefix}/namespaces/pull/12/v1/blake3/" in path for path in written)


def refused(said: Outcome, *, because: str, code: int = 2) -> None:
    """We are turned away at the first request, and nothing else is tried."""
    assert said.code == code
    assert said.of("error") == ["lookups"]
    assert because in said.measured("lookups")
    assert set(WRITING) <= set(said.of("skipped"))


def test_a_wrong_secret(doctor: Doctor, world: World, credentials: Callable[[str, str], None]) -> None:
    credentials(ACCESS_KEY, "another secret")
    said = doctor(**settings(world))
    refused(said, because="SignatureDoesNotMatch (status 403)")
    assert said.checks["lookups"]["advice"] == ["the secret key does not belong to this access key"]


def test_an_access_key_that_nobody_knows(doctor: Doctor, world: World, credentials: Callable[[str, str], None]) -> None:
    credentials("AKIANOBODYHASTHIS000", SECRET_KEY)
    refused(doctor(**settings(world)), because="InvalidAccessKeyId (status 403)")


def test_no_credentials_at_all(doctor: Doctor, world: World, tmp_path: Path) -> None:
    (tmp_path / "credentials").unlink()
    said = doctor(**settings(world))
    assert said.code == 2
    assert said.of("error") == ["credentials", "lookups"]
    assert "no credentials were found" in said.measured("credentials")


def test_a_profile_that_does_not_exist(doctor: Doctor, world: World) -> None:
    said = doctor(**settings(world) | {"MLCBUILD_REMOTE_PROFILE": "nobodys"})
    assert said.code == 2
    assert "the profile does not exist" in said.measured("credentials")


def test_a_bucket_that_does_not_exist(doctor: Doctor, world: World) -> None:
    said = doctor(**settings(world) | {"MLCBUILD_REMOTE": "s3://there-is-none/x"})
    refused(said, because="NoSuchBucket (status 404)")


def test_nobody_listens(doctor: Doctor, world: World) -> None:
    refused(doctor(**settings(world, "http://127.0.0.1:9")), because="cannot be reached", code=36)


def test_who_may_read_and_not_write(doctor: Doctor, world: World, proxy: FaultProxy) -> None:
    proxy.faults.append(
        Fault(wanted=lambda request: request.method != "GET", times=-1, status=403, code="AccessDenied")
    )
    said = doctor(**settings(world, proxy.endpoint))
    assert said.code == 2
    assert said.verdict("lookups") == "ok"
    assert said.of("error") == ["blobs", "results"]
    assert "AccessDenied (status 403)" in said.measured("blobs")
    # What may have come through all the same could not be removed, and is said to be there.
    assert said.measured("left behind").startswith("2 objects, 40 B at most: ")


def test_a_server_that_says_nothing_is_waited_for_within_bounds(
    doctor: Doctor, world: World, proxy: FaultProxy
) -> None:
    proxy.faults.append(Fault(times=-1, stall=0))
    began = time.monotonic()
    said = doctor(
        **settings(world, proxy.endpoint),
        MLCBUILD_REMOTE_TIMEOUT="1",
        MLCBUILD_REMOTE_IDLE_TIMEOUT="1",
        MLCBUILD_REMOTE_MINIMUM_THROUGHPUT="100000000",
    )
    assert time.monotonic() - began < 30
    refused(said, because="in time", code=36)


def test_a_server_that_fails_now_and_then_is_told_of(doctor: Doctor, world: World, proxy: FaultProxy) -> None:
    proxy.faults.append(slow_down(times=2))
    said = doctor(**settings(world, proxy.endpoint))
    assert said.code == 0
    assert said.of("warning") == ["retries"]
    assert said.measured("retries") == "2 of 16 requests had to be repeated"


def signed_without(*dropped: str) -> Callable[[Request], Request]:
    """A server that has never heard of some headers: they are taken away, and the request is signed anew."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    def rewrite(request: Request) -> Request:
        if not any(name in request.headers for name in dropped):
            return request
        unsigned = ("authorization", "x-amz-date", "x-amz-content-sha256", "connection", "expect", "accept-encoding")
        headers = {key: text for key, text in request.headers.items() if key not in (*dropped, *unsigned)}
        url = f"http://{headers['host']}{request.target}"
        again = AWSRequest(method=request.method, url=url, headers=headers, data=request.body)
        S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", "us-east-1").add_auth(again)
        return dataclasses.replace(request, headers={key.lower(): str(text) for key, text in again.headers.items()})

    return rewrite


def test_a_server_that_takes_every_demand_and_heeds_none(doctor: Doctor, world: World, proxy: FaultProxy) -> None:
    proxy.rewrite = signed_without("if-none-match", "x-amz-checksum-crc32", "content-md5")
    said = doctor(**settings(world, proxy.endpoint))
    assert said.code == 0
    assert said.of("warning") == ["conditions", "checksums"]
    assert said.measured("conditions") == "the server ignores If-None-Match"
    assert said.measured("checksums") == "the server accepts an upload with a wrong checksum"
    assert world.keys() == {}


def test_a_server_that_refuses_what_it_does_not_know(doctor: Doctor, world: World, proxy: FaultProxy) -> None:
    def refuse(wanted: Callable[[Request], bool], status: int, code: str) -> None:
        proxy.faults.append(Fault(wanted=wanted, times=-1, status=status, code=code))

    refuse(lambda request: request.method == "PUT" and "if-none-match" in request.headers, 501, "NotImplemented")
    refuse(lambda request: "x-amz-checksum-crc32" in request.headers, 400, "InvalidArgument")
    refuse(lambda request: request.query.startswith("uploads"), 501, "NotImplemented")
    said = doctor(**settings(world, proxy.endpoint))
    assert said.code == 36
    assert said.verdict("blobs") == "ok"  # without all that
    assert said.of("warning") == ["conditions", "checksums"]
    assert said.measured("conditions") == "the server does not support If-None-Match"
    assert said.measured("checksums") == "the server rejects uploads with a checksum, so it does not check them"
    assert said.of("error") == ["parts"]


def test_a_server_that_answers_with_other_bytes(doctor: Doctor, world: World, proxy: FaultProxy) -> None:
    proxy.faults.append(Fault(wanted=lambda request: request.method == "GET", times=-1, flip=True))
    said = doctor(**settings(world, proxy.endpoint))
    assert said.code == 36
    assert said.measured("blobs") == "a blob reads back with other bytes"
    assert said.measured("results") == "a result reads back different from what was written"
    assert said.verdict("throughput") == "skipped"


def test_who_may_not_remove_leaves_what_the_bucket_removes(doctor: Doctor, world: World, proxy: FaultProxy) -> None:
    proxy.faults.append(
        Fault(wanted=lambda request: request.method == "DELETE", times=-1, status=403, code="AccessDenied")
    )
    said = doctor(**settings(world, proxy.endpoint))
    assert said.code == 0
    assert said.verdict("left behind") == "ok"
    assert said.measured("left behind").startswith("7 objects, 14 MB at most: ")
    assert len(world.keys()) == 7


@pytest.mark.parametrize(
    ("seconds", "code", "verdict", "measured"),
    [
        (7200, 36, "error", "s ahead of ours"),
        (-7200, 36, "error", "s behind ours"),
        (-120, 0, "warning", "s behind ours"),
        (20, 0, "ok", "s of ours"),
    ],
)
def test_clocks_that_differ(
    doctor: Doctor, world: World, proxy: FaultProxy, seconds: int, code: int, verdict: str, measured: str
) -> None:
    proxy.answer_headers["date"] = email.utils.formatdate(time.time() + seconds, usegmt=True)
    said = doctor(**settings(world, proxy.endpoint) | {"MLCBUILD_REMOTE_ROLE": "read"})
    assert (said.code, said.verdict("clock")) == (code, verdict)
    assert said.measured("clock").endswith(measured)
    assert said.checks["clock"]["figures"]["skew_seconds"] == pytest.approx(seconds, abs=30)


def test_a_clock_for_which_requests_are_refused(doctor: Doctor, world: World, proxy: FaultProxy) -> None:
    date = email.utils.formatdate(time.time() + 7200, usegmt=True)
    proxy.faults.append(Fault(times=-1, status=403, code="RequestTimeTooSkewed", headers=(("Date", date),)))
    said = doctor(**settings(world, proxy.endpoint))
    # The cause is this machine, not a credential.
    assert said.code == 36
    assert said.of("error") == ["lookups", "clock"]
    assert "RequestTimeTooSkewed" in said.measured("lookups")
    assert said.checks["lookups"]["advice"] == ["set this machine's clock"]
