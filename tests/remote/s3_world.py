"""What tests of the transport over S3 share: credentials as boto finds them, a bucket, transports, and bytes."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.s3.settings import S3Settings
from mlcbuild.cache.remote.s3.transport import S3Transport
from mlcbuild.cache.remote.settings import Deadlines
from tests.remote.fault_proxy import FaultProxy, faulty
from tests.remote.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed

MIB = 1 << 20
FUNCTION = DigestFunction.BLAKE3


@dataclass(kw_only=True)
class World:
    """A prefix of the test's own in a bucket of the session's, and the test's files."""

    server: Seaweed
    bucket: str
    prefix: str
    folder: Path
    opened: list[S3Transport] = field(default_factory=list)

    def transport(
        self, *, function: DigestFunction = FUNCTION, endpoint: str = "", bucket: str = "", **settings: Any
    ) -> S3Transport:
        settings.setdefault("prefix", self.prefix)
        made = S3Transport(
            S3Settings(bucket=bucket or self.bucket, endpoint=endpoint or self.server.endpoint, **settings), function
        )
        self.opened.append(made)
        return made

    def file(self, size: int, *, seed: int = 0, function: DigestFunction = FUNCTION) -> tuple[Path, Digest]:
        """A file of random bytes and its digest."""
        path = self.folder / f"{size}-{seed}"
        path.write_bytes(random.Random(f"{size} {seed}").randbytes(size))
        return path, function.of_file(path)

    def keys(self) -> dict[str, int]:
        """The sizes of all objects below the prefix, by what follows it."""
        client = self.server.client()
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{self.prefix}/")
        return {
            each["Key"].removeprefix(f"{self.prefix}/"): each["Size"]
            for page in pages
            for each in page.get("Contents", ())
        }

    def unfinished(self) -> int:
        """The number of multipart uploads below the prefix that somebody began."""
        client = self.server.client()
        uploads = client.list_multipart_uploads(Bucket=self.bucket, Prefix=f"{self.prefix}/").get("Uploads", [])
        return len(uploads)


@dataclass(kw_only=True)
class Taken:
    """A sink that keeps what it is given."""

    pieces: list[bytes] = field(default_factory=list)

    def __call__(self, piece: bytes) -> None:
        self.pieces.append(piece)

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Writes the file in which boto finds credentials, and nothing else."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def write(access_key: str, secret_key: str) -> None:
        path.write_text(f"[default]\naws_access_key_id = {access_key}\naws_secret_access_key = {secret_key}\n")

    return write


@pytest.fixture
def world(seaweed: Seaweed, tmp_path: Path, credentials: Callable[[str, str], None]) -> Iterator[World]:
    credentials(ACCESS_KEY, SECRET_KEY)
    made = World(server=seaweed, bucket=seaweed.bucket, prefix=f"some/{uuid.uuid4().hex}", folder=tmp_path)
    yield made
    for transport in made.opened:
        transport.close()


@pytest.fixture
def proxy(world: World) -> Iterator[FaultProxy]:
    with faulty(world.server.port) as made:
        yield made


def deadlines(*, idle: float = 20.0, total: float = 40.0) -> Deadlines:
    return Deadlines(connect=5.0, idle=idle, total=total, bytes_per_second=1e9)
