"""A bucket that one user has filled with a small model's libraries, and others who find there what they need.

`filled` builds once a session, in a checkout that the others clone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.reapi import ActionResult
from tests.compiler.tiny_models import checkpoint, write_gguf
from tests.end_to_end.surroundings import Surroundings, foreign, usual
from tests.remote.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed

# botocore signs with the clock, and servers refuse what is a quarter of an hour off.
OTHER_CLOCK_SECONDS = 400
PATIENCE_SECONDS = 900
CUDA_LIBRARY = ":library-cuda"
CPU_PACKAGE = ":package-cpu"
# The weights are fetched: nobody but who fills the bucket has the file.
BUILD_FILE = """\
[workspace]
name = "tiny"

[[local_file]]
name = "weights"
path = "~/tiny.gguf"
sha256 = "{sha256}"

[[model]]
name = "model"
source = ":weights"

[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v3"

[[platform]]
name = "cuda"
kind = "cuda"
arch = ["sm_90"]

[[model_library]]
name = "library-cuda"
model = ":model"
platform = ":cuda"
quantization = "q4f16_1"
overrides = {{ context_window_size = 64, prefill_chunk_size = 16 }}

[[model_package]]
name = "package-cpu"
model = ":model"
platform = ":cpu"
quantization = "q4f32_1"
overrides = {{ context_window_size = 64, prefill_chunk_size = 16 }}
"""


@dataclass(frozen=True, kw_only=True)
class Built:
    """A build that succeeded: how each action ended, by identifier, its report, and the user's own store."""

    place: Surroundings
    statuses: Mapping[str, str]
    keys: Mapping[str, str]
    report: Mapping[str, Any]

    @property
    def store(self) -> DiskStore:
        return DiskStore(self.place.cache, DigestFunction.BLAKE3)

    def result(self, identifier: str) -> ActionResult:
        result = self.store.get(Digest(self.keys[identifier], 0))
        assert result is not None, identifier
        return result

    def blobs_here(self) -> set[str]:
        """The hashes of the blobs in the user's own store."""
        return {path.name for path in (self.place.cache / "v1/blake3/cas").glob("*/*")}

    def placed(self) -> dict[str, tuple[bytes, int]]:
        """Contents and modes of all outputs."""
        return {
            path.relative_to(self.place.root).as_posix(): (path.read_bytes(), path.stat().st_mode)
            for path in (self.place.root / "mlcbuild-out").rglob("*")
            if path.is_file()
        }


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A prefix of its own on a server; `checkout` is the repository of what it was filled from, by `first`."""

    server: Seaweed
    prefix: str
    checkout: Path
    first: Built

    def variables(self, *, endpoint: str = "", writes: bool = False) -> dict[str, str]:
        return {
            "MLCBUILD_REMOTE": f"s3://{self.server.bucket}/{self.prefix}",
            "MLCBUILD_REMOTE_ENDPOINT": endpoint or self.server.endpoint,
            "MLCBUILD_REMOTE_REGION": "us-east-1",
            "MLCBUILD_REMOTE_ROLE": "read-write" if writes else "read",
            "MLCBUILD_REMOTE_SLOW_LOOKUPS": "wait",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def build(place: Surroundings, *targets: str) -> Built:
    """Build targets to their end in a process of the place's own."""
    process = place.start("--build-report", "report.json", *targets, events="events.json")
    try:
        code = process.wait(PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert code == 0, place.printed.read_text(encoding="utf-8")
    lines = map(json.loads, (place.root / "events.json").read_text(encoding="utf-8").splitlines())
    finished = [event for event in lines if event["event"] == "action_finished"]
    return Built(
        place=place,
        statuses={event["identifier"]: event["status"] for event in finished},
        keys={event["identifier"]: event["key"] for event in finished},
        report=json.loads((place.root / "report.json").read_text(encoding="utf-8")),
    )


def commit(root: Path) -> None:
    """Make a folder a repository with all that lies in it."""
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.invalid"]
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], [*identity, "commit", "-q", "-m", "All"]):
        subprocess.run(["git", *arguments], cwd=root, check=True)


def clone(checkout: Path, place: Surroundings) -> None:
    """Clone into a place's root, as its user would: with his umask, and his in the end."""
    subprocess.run(["git", "clone", "-q", str(checkout), str(place.root)], check=True, umask=place.umask)
    place.give(place.root, *place.root.rglob("*"))


def with_variables(place: Surroundings, **variables: str) -> Surroundings:
    return dataclasses.replace(place, variables={**place.variables, **variables})


def write_tiny_model(root: Path, home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    model = write_gguf(home / "tiny.gguf", checkpoint())
    sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
    (root / "BUILD.toml").write_text(BUILD_FILE.format(sha256=sha256))


@pytest.fixture(scope="session")
def filled(seaweed: Seaweed, tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    """With the tiny model's CPU package and CUDA library."""
    place = usual(tmp_path_factory.mktemp("first"))
    write_tiny_model(place.root, Path(place.variables["HOME"]))
    commit(place.root)
    empty = Built(place=place, statuses={}, keys={}, report={})
    bucket = Bucket(server=seaweed, prefix=f"filled/{uuid.uuid4().hex}", checkout=place.root, first=empty)
    writer = with_variables(place, **bucket.variables(writes=True))
    return dataclasses.replace(bucket, first=build(writer, CPU_PACKAGE, CUDA_LIBRARY))


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Surroundings]:
    """Another user's machine, as far as one machine can be two: see `surroundings.foreign`."""
    folder = Path(tempfile.mkdtemp(prefix="mlcbuild-"))
    folder.chmod(0o755)
    try:
        yield foreign(folder, clock_seconds=OTHER_CLOCK_SECONDS, extras=("cuda", "s3"))
    finally:
        shutil.rmtree(folder)


__all__ = ["elsewhere", "filled"]
