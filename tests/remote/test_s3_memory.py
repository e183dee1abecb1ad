"""Memory stays bounded whatever the size of a blob: measured as the peak of a process that does nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.remote.s3_world import FUNCTION, MIB, World

_SIZE = 256 * MIB
_PROGRAM = """
import json, pathlib, sys
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.s3.settings import S3Settings
from mlcbuild.cache.remote.s3.transport import S3Transport

def peak():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024

bucket, prefix, endpoint, path, digest, small_path, small = sys.argv[1:]
transport = S3Transport(S3Settings(bucket=bucket, prefix=prefix, endpoint=endpoint), DigestFunction.BLAKE3)
small, digest = Digest.parse(small), Digest.parse(digest)
transport.upload(small, pathlib.Path(small_path))
transport.download(small, len)
before = peak()
transport.upload(digest, pathlib.Path(path))
uploaded = peak()
hasher = DigestFunction.BLAKE3.hasher()
transport.download(digest, hasher.update)
transport.close()
assert hasher.hexdigest() == digest.hash
print(json.dumps({"upload": uploaded - before, "download": peak() - before}))
"""


@pytest.mark.slow
def test_a_large_blob_takes_no_more_memory_than_the_ranges_under_way(world: World) -> None:
    path = world.folder / "large"
    with path.open("wb") as stream:
        for _ in range(_SIZE // MIB):
            stream.write(os.urandom(MIB))
    small, small_digest = world.file(2 * MIB)
    digest = FUNCTION.of_file(path)
    command = [sys.executable, "-c", _PROGRAM, world.bucket, f"{world.prefix}/m", world.server.endpoint]
    told = subprocess.run(
        [*command, str(path), str(digest), str(small), str(small_digest)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    grown = json.loads(told.stdout)
    assert grown["upload"] < 48 * MIB, "eight parts of 16 MiB are under way, read as they are sent"
    assert grown["download"] < 200 * MIB, "eight ranges of 16 MiB are under way, and one is handed over"
