"""Processes that use one store at once: `python store_users.py ROOT ROLE SEED SECONDS`, killed by tests at any moment.

A builder looks results up, publishes what it misses, and from then on reads the outputs of all that it has seen again
and again: whatever a store answers to a running build must stay. A collector evicts with random limits.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.eviction import Limits, collect
from mlcbuild.cache.merkle import files_of
from mlcbuild.cache.reapi import ActionResult, Tree
from tests.cache.stores import publish, used_at

_NAMES = 24
_CONTENTS = 40
_ACTIONS_A_BUILD = 12

keys: dict[int, Digest] = {}
"""The keys of actions by name, once this process has published them."""


def content(number: int) -> bytes:
    """One of few contents, so that results share blobs and evicted ones come back."""
    return b"%d " % number * (1 + number * 37 % 3000)


def outputs_of(store: DiskStore, result: ActionResult) -> list[Digest]:
    digests = [file.digest for file in result.output_files]
    for directory in result.output_directories:
        tree = Tree.decode(store.read(directory.tree_digest))
        digests += [file.digest for file in files_of(tree, store.function)]
    return digests


def build(root: Path, choose: random.Random, until: float) -> None:
    """One build: everything that it was told to be there must be there until its end."""
    store = DiskStore(root, DigestFunction.BLAKE3)
    needed: list[Digest] = []
    for _ in range(_ACTIONS_A_BUILD):
        if time.monotonic() > until:
            break
        name = choose.randrange(_NAMES)
        contents = random.Random(name)
        files = [content(contents.randrange(_CONTENTS)) for _ in range(3)]
        directory = [content(contents.randrange(_CONTENTS)) for _ in range(3)]
        known = keys.get(name)
        result = store.get(known) if known else None
        if result is None:
            sources = [content(choose.randrange(_CONTENTS))] if choose.random() < 0.5 else []
            key = keys[name] = publish(store, str(name), files=files, directory=directory, log=b"l", sources=sources)
            if choose.random() < 0.5:
                used_at(store, key, time.time_ns() - choose.randrange(10**15))
            result = store.get(key)
            assert result is not None
        needed += outputs_of(store, result)
        for digest in choose.sample(needed, min(len(needed), 8)):
            store.read(digest)
    for digest in needed:
        assert store.path_of(digest).stat().st_size == digest.size_bytes
    store.release()


def main() -> None:
    root, role, seed, seconds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    choose = random.Random(seed)
    # A process that dies loses nothing that the kernel has: waiting for the disk would only make this slow.
    os.fdatasync = os.fsync = lambda fd: None  # noqa: ARG005
    until = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < until:
        if role == "builder":
            build(root, choose, until)
        else:
            collect(root, Limits(max_bytes=choose.choice([0, 0, 50_000, 200_000, 1_000_000])))
        rounds += 1
    print(rounds)


if __name__ == "__main__":
    main()
