"""A blob of more than 5 GiB, which S3 takes in parts alone, and 100,000 small ones: from one machine's store to
another's by way of a real server, in bounded memory. Each says what it measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.remote.s3_world import MIB
from tests.remote.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed, running

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow]

_USERS = Path(__file__).with_name("scale_users.py")
_LARGE_BYTES = (5 << 30) + 12_345  # no multiple of a part
_SMALL_BLOBS = 100_000


@dataclass(kw_only=True)
class Users:
    """Machines of their own, each a folder, of one server; all of it is gone afterwards, since it is tens of GB."""

    server: Seaweed
    folder: Path
    say: Callable[[str], None]

    def does(self, machine: str, role: str, **request: Any) -> dict[str, Any]:
        place = {"bucket": self.server.bucket, "prefix": "scale", "endpoint": self.server.endpoint}
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        command = [sys.executable, str(_USERS), str(self.folder / machine), role, json.dumps(place | request)]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        measured: dict[str, Any] = json.loads(ended.stdout)
        self.say(f"{role} {measured['seconds']:.1f} s, {measured['memory'] / MIB:.0f} MiB more memory")
        return measured


@pytest.fixture
def users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Users]:

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}", flush=True)

    server_folder, machines = tmp_path / "server", tmp_path / "machines"
    server_folder.mkdir()
    try:
        with running(server_folder) as server:
            yield Users(server=server, folder=machines, say=say)
    finally:
        for folder in (server_folder, machines):
            shutil.rmtree(folder, ignore_errors=True)


def forget(users: Users, machine: str) -> None:
    shutil.rmtree(users.folder / machine)


def goes_around(users: Users, *, fill: Callable[[], dict[str, Any]], most_memory: dict[str, int]) -> None:
    filled = fill()
    keys = filled["keys"]
    read = users.does("one", "read", keys=keys)
    sent = users.does("one", "send", keys=keys)
    forget(users, "one")
    taken = users.does("other", "take", keys=keys)
    for role, measured in (("fill", filled), ("read", read), ("send", sent), ("take", taken)):
        assert measured["memory"] < most_memory[role], f"{role}: {measured['memory'] / MIB:.0f} MiB"


def test_a_blob_of_more_than_5_gib(users: Users) -> None:
    file = users.folder / "file"
    file.parent.mkdir()
    with file.open("wb") as stream:
        for _ in range(_LARGE_BYTES // MIB):
            stream.write(os.urandom(MIB))
        stream.write(os.urandom(_LARGE_BYTES % MIB))
    most = {"fill": 16 * MIB, "read": 32 * MIB, "send": 64 * MIB, "take": 256 * MIB}
    goes_around(users, fill=lambda: users.does("one", "fill", file=str(file), count=0), most_memory=most)
    client = users.server.client()
    objects = client.list_objects_v2(Bucket=users.server.bucket, Prefix="scale/").get("Contents", ())
    assert max(each["Size"] for each in objects) == _LARGE_BYTES
    assert not client.list_multipart_uploads(Bucket=users.server.bucket, Prefix="scale/").get("Uploads")


def test_a_hundred_thousand_small_blobs(users: Users) -> None:
    most = {"fill": 256 * MIB, "read": 256 * MIB, "send": 512 * MIB, "take": 512 * MIB}
    goes_around(users, fill=lambda: users.does("one", "fill", file="", count=_SMALL_BLOBS), most_memory=most)
