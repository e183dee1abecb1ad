"""A store of 100,000 blobs and its results: the time to list it, to evict half of it, and of a hit.

`python -m benchmarks.eviction` makes the store in the temporary directory and prints seconds. `--results N` sets the
size. Each result has three outputs and the components of its key, as in builds. The store's files are in the kernel's
caches, unless root runs it with `--cold`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from mlcbuild.cache import integrity
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import LAYOUT_VERSION, DiskStore
from mlcbuild.cache.eviction import Limits, collect, plan
from mlcbuild.cache.inventory import take_inventory
from mlcbuild.cache.merkle import TreeFile, input_root
from mlcbuild.cache.reapi import (
    Action,
    ActionResult,
    AnyMessage,
    Command,
    ExecutedActionMetadata,
    OutputFile,
    encode_digest,
)

BLAKE3 = DigestFunction.BLAKE3
BLOBS_A_RESULT = 6  # that it has for itself
ROUNDS = 3


def fill(root: Path, results: int) -> list[Digest]:
    """Results, one a second, the last one now; answers their keys, the oldest first. Files are written in place: the
    store's own way, with a rename and a wait for the disk each, would take many minutes.
    """
    store = DiskStore(root, BLAKE3)
    base = root / LAYOUT_VERSION / BLAKE3.value
    for folder, number in itertools.product(("cas", "ac"), range(256)):
        (base / folder / f"{number:02x}").mkdir(exist_ok=True)

    def put(data: bytes) -> Digest:
        digest = BLAKE3.of_bytes(data)
        path = f"{base}/cas/{digest.hash[:2]}/{digest.hash}"
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(descriptor, data)
            integrity.write_attribute(descriptor, integrity.checksum_of_bytes(data))
            os.fchmod(descriptor, 0o444)
            os.close(descriptor)
        return digest

    shared = put(b"shared by all")
    now = time.time_ns()
    keys = []
    for number in range(results):
        files = [put(b"%d %d " % (number, index) * 200) for index in range(3)]
        inputs = input_root([TreeFile(f"in/{number}", shared)], BLAKE3)
        command = put(Command(arguments=(f"tool {number}",)).encode())
        for _, data in inputs.directories:
            put(data)
        key = put(Action(command_digest=command, input_root_digest=inputs.digest).encode())
        metadata = AnyMessage(type_url="breakdown", value=encode_digest(shared))
        body = ActionResult(
            output_files=tuple(OutputFile(path=f"out/{index}", digest=file) for index, file in enumerate(files)),
            execution_metadata=ExecutedActionMetadata(worker="local", auxiliary_metadata=(metadata,)),
        ).encode()
        path = store.result_path(key.hash)
        Path(path).write_bytes(body + integrity.checksum_of_bytes(body))
        used = now - (results - number) * 1_000_000_000
        os.utime(path, ns=(used, used))
        keys.append(key)
    store.release()
    return keys


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def hit(root: Path, keys: list[Digest]) -> tuple[float, float, float]:
    """Seconds a hit that reads its result, one that only asks for it, and the files that exist at all."""
    store = DiskStore(root, BLAKE3)
    read = seconds(lambda: [store.get(key) for key in keys]) / len(keys)
    store.release()
    asked = seconds(lambda: [store.contains(key) for key in keys]) / len(keys)
    exists = seconds(lambda: [os.path.exists(store.result_path(key.hash)) for key in keys]) / len(keys)  # noqa: PTH110
    store.release()
    return read, asked, exists


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=int, default=100_000 // BLOBS_A_RESULT)
    parser.add_argument("--cold", action="store_true", help="drop the kernel's caches before each time (root)")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mlcbuild-eviction-"))
    try:
        began = time.perf_counter()
        keys = fill(folder, arguments.results)
        print(f"filled in {time.perf_counter() - began:.1f} s")
        base = folder / "v1" / BLAKE3.value

        def prepare() -> None:
            if arguments.cold:
                subprocess.run(["sync"], check=True)
                Path("/proc/sys/vm/drop_caches").write_text("3")

        times = []
        for _ in range(ROUNDS):
            prepare()
            times.append(seconds(lambda: take_inventory(base, BLAKE3)))
        inventory = take_inventory(base, BLAKE3)
        print(
            f"{len(inventory.results):,} results, {len(inventory.blobs):,} blobs, {inventory.stored_bytes / 1e6:.0f} MB"
        )
        print(f"inventory: {min(times):.2f} to {max(times):.2f} s")
        half = Limits(max_bytes=inventory.stored_bytes // 2)
        print(f"plan for half: {seconds(lambda: plan([inventory], half, now=time.time_ns())):.2f} s")
        read, asked, exists = hit(folder, keys)
        print(f"a hit: {read * 1e6:.1f} µs read, {asked * 1e6:.1f} µs asked for; existence alone {exists * 1e6:.1f} µs")
        prepare()
        print(f"gc that removes nothing: {seconds(lambda: collect(folder, Limits(max_bytes=10**12))):.2f} s")
        prepare()
        print(f"gc to half: {seconds(lambda: collect(folder, half)):.2f} s")
        prepare()
        print(f"gc of the rest: {seconds(lambda: collect(folder, Limits(max_bytes=0))):.2f} s")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
