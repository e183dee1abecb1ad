"""A release in a bucket, on a real server: it appears with its provenance, goes on where it ended, and is verified."""

from __future__ import annotations

import dataclasses
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlcbuild.cli.main import main
from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.release.bucket import Bucket
from mlcbuild.release.contents import ReleaseFile
from mlcbuild.release.making import MadeRelease, make_release
from mlcbuild.release.verification import verify_release
from tests.cli.kernel_workspace import enter_kernel_workspace
from tests.release.world import contents, new_key
from tests.remote.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed


@pytest.fixture
def address(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix of its own; the client is set up as the AWS tools are."""
    for name, value in {
        "AWS_ENDPOINT_URL": seaweed.endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    return f"s3://{seaweed.bucket}/releases/{uuid.uuid4().hex}"


@pytest.fixture
def bucket(address: str) -> Iterator[Bucket]:
    opened = Bucket(address)
    yield opened
    opened.close()


@pytest.fixture
def made(tmp_path: Path) -> MadeRelease:
    """A release with a file of the disk, as those of targets are."""
    key = new_key("ecdsa")
    target = contents().targets[0]
    library = tmp_path / "lib.so"
    library.write_bytes(target.files[0].data)
    files = (dataclasses.replace(target.files[0], source=library, data=b""), *target.files[1:])
    return make_release(contents(targets=(dataclasses.replace(target, files=files),)), key)


def names(seaweed: Seaweed, address: str) -> list[str]:
    prefix = address.partition(f"s3://{seaweed.bucket}/")[2] + "/"
    answer = seaweed.client().list_objects_v2(Bucket=seaweed.bucket, Prefix=prefix)
    return sorted(each["Key"].removeprefix(prefix) for each in answer.get("Contents", ()))


def spoil(seaweed: Seaweed, address: str, path: str, data: bytes) -> None:
    key = address.partition(f"s3://{seaweed.bucket}/")[2]
    seaweed.client().put_object(Bucket=seaweed.bucket, Key=f"{key}/{path}", Body=data)


class Interrupted(Exception):  # noqa: N818
    """Stands for Ctrl-C."""


def write(bucket: Bucket, files: tuple[ReleaseFile, ...], *, most: int = 100) -> int:
    """Write, and stop after `most` files."""
    count = 0

    def told(_bytes: int) -> None:
        nonlocal count
        count += 1
        if count == most:
            raise Interrupted

    return bucket.write(files, told=told)


def test_a_release_in_a_bucket_is_verified_and_spoilt_objects_are_named(
    seaweed: Seaweed, address: str, bucket: Bucket, made: MadeRelease
) -> None:
    assert made.key is not None
    assert not bucket.holds(made.files, is_same_provenance=made.is_same_provenance)
    assert write(bucket, made.files) == 0
    assert verify_release(bucket, made.key.public).is_verified
    assert bucket.holds(made.files, is_same_provenance=made.is_same_provenance)
    spoil(seaweed, address, "models/m-cpu/lib.so", b"librarY")
    spoil(seaweed, address, "models/extra", b"x")
    again = Bucket(address)
    problems = verify_release(again, made.key.public).problems
    again.close()
    assert [(each.kind.value, each.path) for each in problems] == [
        ("extra", "models/extra"),
        ("tampered", "models/m-cpu/lib.so"),
    ]


def test_an_interrupted_release_is_no_release_and_is_continued(
    seaweed: Seaweed, address: str, bucket: Bucket, made: MadeRelease
) -> None:
    with pytest.raises(Interrupted):
        write(bucket, made.files, most=3)
    assert names(seaweed, address) == sorted(file.path for file in made.files[:3])
    spoil(seaweed, address, made.files[0].path, b"x" * made.files[0].size_bytes)
    again = Bucket(address)
    assert not again.holds(made.files, is_same_provenance=made.is_same_provenance)
    assert write(again, made.files) == 2  # The spoilt one was sent again.
    assert made.key is not None
    assert verify_release(again, made.key.public).is_verified
    again.close()


def test_a_prefix_with_anything_else_is_left_alone(
    seaweed: Seaweed, address: str, bucket: Bucket, made: MadeRelease
) -> None:
    spoil(seaweed, address, "notes.txt", b"x")
    with pytest.raises(UsageError, match=r"not of this release, such as notes\.txt"):
        bucket.holds(made.files, is_same_provenance=made.is_same_provenance)
    assert names(seaweed, address) == ["notes.txt"]


def test_another_release_is_not_replaced(address: str, bucket: Bucket, made: MadeRelease) -> None:
    write(bucket, made.files)
    other = make_release(contents(version="2.0"), made.key)
    with pytest.raises(UsageError, match="something else"):
        bucket.holds(other.files, is_same_provenance=other.is_same_provenance)


def test_a_file_that_has_changed_meanwhile_is_not_sent(bucket: Bucket, made: MadeRelease) -> None:
    (library,) = (file for file in made.files if file.source)
    assert library.source is not None
    library.source.write_bytes(b"librarY")
    with pytest.raises(LocalEnvironmentError, match="changed while"):
        write(bucket, made.files)


def test_where_nothing_is_there_is_no_release(bucket: Bucket, made: MadeRelease) -> None:
    assert made.key is not None
    with pytest.raises(FileNotFoundError):
        verify_release(bucket, made.key.public)


def test_the_commands_release_to_a_bucket_and_verify_there(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    enter_kernel_workspace(tmp_path, monkeypatch)
    for command in ("genpkey -algorithm ed25519 -out release.key", "pkey -in release.key -pubout -out release.pub"):
        subprocess.run(["openssl", *command.split()], check=True, capture_output=True)
    arguments = ["release", "//:package", "--to", address, "--key", "release.key", "--version", "1.0"]
    assert main([*arguments, "--build"]) == 0
    assert main(["verify", address, "--key", "release.pub"]) == 0
    said = capsys.readouterr()
    assert "verified: example 1.0, 4 files" in said.out
    assert main(arguments) == 0
    assert "was there already: 4 files" in capsys.readouterr().err
    assert main(["verify", f"{address}/nowhere", "--key", "release.pub"]) == 2
