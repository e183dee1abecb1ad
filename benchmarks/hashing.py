"""How fast builds compute digests of files, against the bare hash functions on the same bytes.

    python -m benchmarks.hashing [--megabytes N] [--rounds N]

Method. The digest of a file of N random megabytes, which is in the kernel's cache, is computed in turn by

- `FileDigests.of`, as for a source file: BLAKE3 of the bytes that are read, with the stats that prove the file
  unchanged; against `blake3` fed with the same file in pieces of 256 KiB, the best size, by the shortest loop in
  Python (`readinto` one buffer);
- `DigestFunction.of_file`, against the same;
- `checksum_of_file`, which guards a stored blob and is computed when it is first read; against `xxh3_128` fed by the
  same loop;
- `DiskStore.put_file(move=True)`, which computes both functions and does the store's own work; against both functions
  fed by the same loop. It uses `move`, because copying measures the disk; moving back is not timed.

Seconds are processor seconds, so that other programs and the disk do not count. It prints megabytes a second and the
median ratio of the rounds, which must be at least 0.9. It also prints bare functions on bytes in memory; the
difference to the loops is the cost of reading.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blake3
import xxhash

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.cache.integrity import checksum_of_file

BOUND = 0.9
MIB = 1 << 20
PIECE_BYTES = 256 << 10
FUNCTION = DigestFunction.BLAKE3


def fed(path: Path, *hashers: Any) -> None:
    buffer = bytearray(PIECE_BYTES)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            for hasher in hashers:
                hasher.update(view[:count])
    for hasher in hashers:
        hasher.digest()


def checksum(path: Path) -> None:
    with path.open("rb", buffering=0) as stream:
        checksum_of_file(stream.fileno())


def pairs(folder: Path, data: Path) -> dict[str, tuple[Callable[[], float], Callable[[], float]]]:
    """Name → ours, theirs; each answers seconds."""

    def stored() -> float:
        # A store that is empty each time, or nothing would be written; the file comes back afterwards.
        root = folder / "store"
        store = DiskStore(root, FUNCTION)
        begin = time.process_time()
        digest = store.put_file(data, move=True)
        took = time.process_time() - begin
        blob = root / "v1/blake3/cas" / digest.hash[:2] / digest.hash
        blob.chmod(0o644)
        blob.rename(data)
        store.release()
        return took

    return {
        "source file": (
            timed(lambda: FileDigests(folder, FUNCTION).of(data.name)),
            timed(lambda: fed(data, blake3.blake3())),
        ),
        "of_file": (timed(lambda: FUNCTION.of_file(data)), timed(lambda: fed(data, blake3.blake3()))),
        "check of a blob": (timed(lambda: checksum(data)), timed(lambda: fed(data, xxhash.xxh3_128()))),
        "put into the store": (stored, timed(lambda: fed(data, blake3.blake3(), xxhash.xxh3_128()))),
    }


def timed(work: Callable[[], object]) -> Callable[[], float]:
    def run() -> float:
        begin = time.process_time()
        work()
        return time.process_time() - begin

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mlcbuild-hashing-"))
    try:
        data = folder / "data"
        with data.open("wb") as stream:
            for _ in range(arguments.megabytes):
                stream.write(os.urandom(MIB))
        os.sync()
        size = arguments.megabytes * MIB / 1e6
        for name, (ours, theirs) in pairs(folder, data).items():
            ours()
            theirs()
            rounds = [(ours(), theirs()) for _ in range(arguments.rounds)]
            ratios = sorted(their / our for our, their in rounds)
            mine, bare = (statistics.median(each) for each in zip(*rounds, strict=True))
            spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            print(f"{name:18} {size / mine:6.0f} MB/s, bare {size / bare:6.0f} MB/s, ratio {spread}, bound {BOUND}")
        memory = data.read_bytes()
        for name, function in (("blake3", blake3.blake3), ("xxh3_128", xxhash.xxh3_128)):
            took = min(timed(lambda function=function: function(memory).digest())() for _ in range(5))  # type: ignore[misc]
            print(f"{name} on bytes in memory: {size / took:.0f} MB/s")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
