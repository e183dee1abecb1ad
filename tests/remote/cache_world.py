"""What tests of the RemoteStore share: machines with a store each, and results of made-up actions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.merkle import TreeFile, tree_of
from mlcbuild.cache.reapi import Action, ActionResult, ExecutedActionMetadata, OutputDirectory, OutputFile
from mlcbuild.cache.remote.policy import RemotePolicy, RemoteRole, Upload
from mlcbuild.cache.remote.remote_store import RemoteStore
from mlcbuild.cache.remote.retrying import RetryPolicy
from mlcbuild.cache.remote.transport import Transport
from tests.remote.memory_transport import BLAKE3, Clock


def policy(**changes: Any) -> RemotePolicy:
    settings: dict[str, Any] = {
        "role": RemoteRole.READ_WRITE,
        "upload": Upload.RESULTS,
        "downloads": 4,
        "uploads": 4,
        "retries": RetryPolicy(attempts=3),
        "drain_seconds": 20.0,
    }
    return RemotePolicy(**(settings | changes))


@dataclass
class Made:
    """An action that ran: its key, its result, and what the files hold that it made."""

    key: Digest
    result: ActionResult
    files: dict[str, bytes]
    outputs: tuple[Digest, ...]


def made(store: DiskStore, number: int, *, sizes: Sequence[int] = (10, 20_000), below: Sequence[int] = (5,)) -> Made:
    """The same for the same arguments, wherever it is made: files of `sizes`, and in a folder files of `below`."""
    source = random.Random(f"{number} {list(sizes)} {list(below)}")
    files = {f"f{index}": source.randbytes(size) for index, size in enumerate(sizes)}
    files |= {f"folder/g{index}": source.randbytes(size) for index, size in enumerate(below)}
    digests = {path: store.put_bytes(data, durable=False) for path, data in files.items()}
    command = store.put_bytes(b"command %d" % number, durable=False)
    action = Action(command_digest=command, input_root_digest=store.put_bytes(b""))
    tree = tree_of([TreeFile(path.removeprefix("folder/"), digests[path]) for path in files if "/" in path], BLAKE3)
    result = ActionResult(
        output_files=tuple(OutputFile(path=path, digest=digests[path]) for path in sorted(files) if "/" not in path),
        output_directories=(OutputDirectory(path="folder", tree_digest=store.put_bytes(tree.encode(), durable=False)),),
        stdout_digest=store.put_bytes(b"log of %d" % number, durable=False),
        execution_metadata=ExecutedActionMetadata(worker="w"),
    )
    key = store.put_bytes(action.encode(), durable=False)
    return Made(key=key, result=result, files=files, outputs=tuple(digests.values()))


@dataclass
class Machine:
    """A user's machine: a store of its own, and a RemoteStore for one build."""

    store: DiskStore
    cache: RemoteStore
    told: list[str] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    def send(self, sent: Made) -> None:
        self.cache.send(sent.key, sent.result, sent.outputs, self.store)

    def takes(self, wanted: Made) -> bool:
        """Look up and fetch all; True where all came, which has been compared. Never wrong bytes."""
        result = self.cache.find(wanted.key, self.store)
        if result is None:
            return False
        assert result.exit_code == 0
        assert [(file.path, file.digest) for file in result.output_files] == [
            (file.path, file.digest) for file in wanted.result.output_files
        ]
        lost = self.cache.fetch(wanted.outputs, self.store)
        for digest in wanted.outputs:
            # What was lost to this one, another thread may have brought since.
            if digest not in lost or not self.store.missing([digest]):
                assert BLAKE3.of_bytes(self.store.read(digest)) == digest
        return not lost


def machine(
    folder: Path, *transports: Transport, seed: int = 0, hooks: dict[str, Any] | None = None, **changes: Any
) -> Machine:
    clock = Clock()
    cache = RemoteStore(transports, policy(**changes), clock=clock, sleep=clock.sleep, seed=seed, **(hooks or {}))
    one = Machine(store=DiskStore(folder, BLAKE3), cache=cache, clock=clock)
    cache.start(one.told.append)
    return one
