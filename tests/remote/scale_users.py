"""Machines that share large or many blobs over S3, a process each: `python scale_users.py FOLDER ROLE REQUEST`.

REQUEST is a JSON object; what was measured is printed as one: seconds a step, and bytes of the highest resident memory
beyond what the process had when everything was loaded. Roles: `fill` stores what a result names, `send` uploads it,
`take` is another machine that has a hit on it, fetches all, and verifies it.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.merkle import TreeFile, files_of, tree_of
from mlcbuild.cache.reapi import Action, ActionResult, ExecutedActionMetadata, OutputDirectory, OutputFile, Tree
from mlcbuild.cache.remote.policy import RemotePolicy, RemoteRole
from mlcbuild.cache.remote.remote_store import RemoteStore
from mlcbuild.cache.remote.s3.settings import S3Settings
from mlcbuild.cache.remote.s3.transport import S3Transport

_FUNCTION = DigestFunction.BLAKE3
_DRAIN_SECONDS = 3000.0


def fill(folder: Path, *, file: str, count: int) -> list[str]:
    """A file, which is given away, and `count` small blobs in folders of 1,000; answers the keys of their results."""
    store = DiskStore(folder, _FUNCTION)
    keys = []
    if file:
        large = store.put_file(Path(file), move=True)
        assert store.path_of(large).stat().st_size == large.size_bytes
        keys.append(_publish(store, "large", ActionResult(output_files=(OutputFile(path="weights", digest=large),))))
    source = random.Random(count)
    for first in range(0, count, 1000):
        # Half of them are small enough to ride along with a request, and all are different.
        files = [
            TreeFile(f"ü {number}", store.put_bytes(b"%d " % number + source.randbytes(number % 3000), durable=False))
            for number in range(first, min(first + 1000, count))
        ]
        tree = store.put_bytes(tree_of(files, _FUNCTION).encode(), durable=False)
        result = ActionResult(output_directories=(OutputDirectory(path="all", tree_digest=tree),))
        keys.append(_publish(store, f"small {first}", result))
    return keys


def read_back(folder: Path, *, keys: list[str]) -> int:
    """Every blob read whole and checked, by a process that has verified none."""
    store = DiskStore(folder, _FUNCTION)
    total = 0
    for key in keys:
        result = store.get(Digest.parse(key))
        assert result is not None
        for digest in outputs_of(store, result):
            assert store.path_of(digest).stat().st_size == digest.size_bytes
            total += 1
    return total


def send(folder: Path, *, keys: list[str], cache: RemoteStore) -> None:
    store = DiskStore(folder, _FUNCTION)
    for text in keys:
        key = Digest.parse(text)
        result = store.get(key)
        assert result is not None
        cache.send(key, result, outputs_of(store, result), store)
    cache.finish()
    assert cache.counters.results_uploaded == len(keys), cache.counters
    assert cache.counters.uploads_dropped == 0


def take(folder: Path, *, keys: list[str], cache: RemoteStore) -> None:
    store = DiskStore(folder, _FUNCTION)
    for text in keys:
        result = cache.find(Digest.parse(text), store)
        assert result is not None, cache.counters
        assert cache.fetch([each.tree_digest for each in result.output_directories], store) == ()
        outputs = outputs_of(store, result)
        assert cache.fetch(outputs, store) == ()
        for digest in outputs:
            assert _FUNCTION.of_file(store.path_of(digest)) == digest


def outputs_of(store: DiskStore, result: ActionResult) -> list[Digest]:
    found = [file.digest for file in result.output_files]
    for directory in result.output_directories:
        found += [file.digest for file in files_of(Tree.decode(store.read(directory.tree_digest)), _FUNCTION)]
    return found


def _publish(store: DiskStore, name: str, result: ActionResult) -> str:
    command = store.put_bytes(name.encode(), durable=False)
    action = Action(command_digest=command, input_root_digest=store.put_bytes(b"", durable=False))
    key = store.put_bytes(action.encode(), durable=False)
    told = ExecutedActionMetadata(worker="w")
    store.put(
        key,
        ActionResult(
            output_files=result.output_files, output_directories=result.output_directories, execution_metadata=told
        ),
    )
    return str(key)


def _peak() -> int:
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024


def _remote(request: dict[str, Any]) -> RemoteStore:
    settings = S3Settings(bucket=request["bucket"], prefix=request["prefix"], endpoint=request["endpoint"])
    transport = S3Transport(settings, _FUNCTION)
    assert transport.read_result(_FUNCTION.of_bytes(b"nobody's")) is None  # The client is loaded from here on.
    policy = RemotePolicy(role=RemoteRole.READ_WRITE, drain_seconds=_DRAIN_SECONDS)
    cache = RemoteStore([transport], policy)
    cache.start(lambda message: print(message, file=sys.stderr))
    return cache


def main() -> None:
    folder, role, request = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    told: dict[str, Any] = {}
    work: Callable[[], Any]
    if role == "fill":
        DiskStore(folder, _FUNCTION).put_bytes(b"everything is loaded")
        work = lambda: told.update(keys=fill(folder, file=request["file"], count=request["count"]))  # noqa: E731
    elif role == "read":
        work = lambda: told.update(blobs=read_back(folder, keys=request["keys"]))  # noqa: E731
    else:
        cache = _remote(request)
        work = lambda: (send if role == "send" else take)(folder, keys=request["keys"], cache=cache)  # noqa: E731
    before, began = _peak(), time.perf_counter()
    work()
    told |= {"seconds": time.perf_counter() - began, "memory": _peak() - before}
    if role in ("send", "take"):
        cache.close()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
