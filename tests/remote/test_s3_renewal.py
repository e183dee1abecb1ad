"""Credentials that end in the middle of a build: whoever renews them where the AWS tools look, renews them for us.

SeaweedFS takes no session token that its own token service has not made, so what ends here is an access key: the proxy
answers as S3 does for an expired token, from some request on, and the server knows both keys.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcbuild.cache.remote.policy import RemoteRole
from mlcbuild.engine.build_events import ActionStatus
from tests.remote.fault_proxy import Fault, FaultProxy, Request
from tests.remote.s3_world import World
from tests.remote.seaweed import ACCESS_KEY, OTHER_ACCESS_KEY, OTHER_SECRET_KEY, SECRET_KEY
from tests.remote.test_remote_builds import User


class Expiry:
    """From the `after`th request of the old key on it has expired; just before that, `renew` is called."""

    def __init__(self, renew: Callable[[], object], *, after: int) -> None:
        self.refused = 0
        self._left = after
        self._renew = renew

    def __call__(self, request: Request) -> bool:
        if ACCESS_KEY not in request.headers.get("authorization", ""):
            return False
        self._left -= 1
        if self._left == 0:
            self._renew()
        self.refused += self._left <= 0
        return self._left <= 0


def from_a_file(_folder: Path, monkeypatch: pytest.MonkeyPatch, file: Callable[[str, str], None]) -> None:
    file(ACCESS_KEY, SECRET_KEY)


def from_a_process(folder: Path, monkeypatch: pytest.MonkeyPatch, file: Callable[[str, str], None]) -> None:
    """A program that tells what the file holds. It says of nothing when it expires, as some do, or a wrong time."""
    program = folder / "tell.py"
    program.write_text(
        "import configparser, json, os\n"
        "file = configparser.ConfigParser()\n"
        f"file.read({str(folder / 'credentials')!r})\n"
        "found = file['kept']\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': found['aws_access_key_id'],"
        " 'SecretAccessKey': found['aws_secret_access_key'], 'Expiration': '2100-01-01T00:00:00Z'}))\n"
    )
    config = folder / "config"
    config.write_text(f"[default]\ncredential_process = {sys.executable} {program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    file(ACCESS_KEY, SECRET_KEY)
    hide(folder)


def hide(folder: Path) -> None:
    """What the program reads is not for boto itself."""
    path = folder / "credentials"
    path.write_text(path.read_text().replace("[default]", "[kept]"))


@pytest.mark.parametrize("source", [from_a_file, from_a_process])
@pytest.mark.parametrize("after", [1, 12])
def test_a_build_goes_on_with_credentials_that_were_renewed_meanwhile(
    tmp_path: Path,
    world: World,
    proxy: FaultProxy,
    credentials: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    source: Callable[[Path, pytest.MonkeyPatch, Callable[[str, str], None]], None],
    after: int,
) -> None:
    source(tmp_path, monkeypatch, credentials)

    def renew() -> None:
        credentials(OTHER_ACCESS_KEY, OTHER_SECRET_KEY)
        if source is from_a_process:
            hide(tmp_path)

    expiry = Expiry(renew, after=after)
    proxy.faults.append(Fault(wanted=expiry, status=400, code="ExpiredToken", times=-1))
    writer = User(tmp_path / "writer", world.transport(endpoint=proxy.endpoint))
    assert writer.build() == {ActionStatus.EXECUTED_LOCAL}
    assert expiry.refused > 0
    assert writer.notices == []
    assert writer.remote.counters.results_uploaded == len(writer.graph)
    assert writer.remote.counters.failures == 0
    used = {key for key in (ACCESS_KEY, OTHER_ACCESS_KEY) if any(uses(request, key) for request in proxy.requests)}
    assert used == {ACCESS_KEY, OTHER_ACCESS_KEY}
    reader = User(tmp_path / "reader", world.transport(), role=RemoteRole.READ)
    assert reader.build() == {ActionStatus.REMOTE_HIT}


def uses(request: Request, key: str) -> bool:
    return key in request.headers.get("authorization", "")


def test_credentials_that_nobody_renews_end_the_use_of_the_bucket_and_not_the_build(
    tmp_path: Path, world: World, proxy: FaultProxy
) -> None:
    expiry = Expiry(lambda: None, after=12)
    proxy.faults.append(Fault(wanted=expiry, status=400, code="ExpiredToken", times=-1))
    writer = User(tmp_path / "writer", world.transport(endpoint=proxy.endpoint))
    assert writer.build() == {ActionStatus.EXECUTED_LOCAL}
    assert writer.notices
    assert any("expired" in notice.lower() for notice in writer.notices)
    assert not any(json.dumps(secret) in str(writer.notices) for secret in (SECRET_KEY, ACCESS_KEY))
