"""What a process of a Ray node does for a build: run an action from the node's store, take and give blobs.

`serve` is called by Ray, one call at a time, with bytes, and answers bytes; between calls the process keeps what it has
started. It raises nothing that is a build's or a machine's fault. A call is a JSON object with `call` and the build's
`surroundings`: `store` (its directory) and `identity`, `function` (of its digests), `toolchains` (names), `likeness`
(a digest), `remote` (see `remote_on_node`), `sandbox`, and `idle_seconds`, after which a fork server that nobody uses
ends.
"""

from __future__ import annotations

import os
import queue
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.store import BlobMissingError
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, OutcomeKind
from mlcbuild.errors import InfrastructureError
from mlcbuild.execution.local import LocalExecutor
from mlcbuild.execution.machine_resources import MachineResources
from mlcbuild.execution.ray.frames import pack, unpack
from mlcbuild.execution.ray.likeness import digest_of, likeness_of
from mlcbuild.execution.ray.messages import outcome_to_json, request_from_json
from mlcbuild.execution.ray.node_store import Incoming, piece_of, root_on_node
from mlcbuild.execution.ray.remote_on_node import NodeRemote
from mlcbuild.execution.scratch import Scratch
from mlcbuild.execution.server_pool import pool_directory
from mlcbuild.toolchains.table import Toolchains

Answer = tuple[dict[str, Any], list[bytes]]

SMALL_BYTES = 64 << 10  # a blob up to this size rides along, as long as all that do stay below the next two
REQUEST_BYTES = 512 << 10
_ANSWER_BYTES = 32 << 20
_POLL_SECONDS = 0.1
_STOP_SECONDS = 5.0
_KEPT_CALLS = 100
_VISIBLE_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

# Ray has seen to it that the node has what the action needs.
_ANYTHING = MachineResources(cpus=1 << 16, gpus=float(1 << 16))

_workers: dict[tuple[str, str], NodeWorker] = {}


def serve(data: bytes) -> bytes:
    """Answer a call. Raises KeyError or ValueError for what is none."""
    head, blobs = unpack(data)
    surroundings = head["surroundings"]
    key = (surroundings["identity"], surroundings["function"])
    try:
        if key not in _workers:
            _workers[key] = NodeWorker(surroundings)
        worker = _workers[key]
        told, beside = worker.answer(head, blobs)
    except (InfrastructureError, OSError) as error:
        told, beside = {"trouble": str(error), "is_full": _is_full(str(error))}, []
    return pack({**told, "node_id": _node_id()}, beside)


class NodeWorker:
    """One build's work in this process. Raises InfrastructureError where the node's store cannot be opened."""

    def __init__(self, surroundings: Mapping[str, Any]) -> None:
        root, self._is_shared = root_on_node(surroundings["store"], surroundings["identity"])
        self._store = DiskStore(root, DigestFunction(surroundings["function"]))
        self._incoming = Incoming(root)
        self._remote = NodeRemote(surroundings["remote"], self._store)
        fingerprints = Toolchains(root / "node-toolchains.json")
        self._likeness = likeness_of(surroundings["toolchains"], fingerprints)
        try:
            fingerprints.save()
        except (InfrastructureError, OSError):
            pass  # It is made anew by the next process.
        self._digest_of_likeness = digest_of(self._likeness)
        self._code = Scratch(root / "scratch").new()
        self._code_there: list[list[Any]] = []
        self._ended: queue.SimpleQueue[ExecutionOutcome] = queue.SimpleQueue()
        self._executor = LocalExecutor(
            self._store,
            jobs=1,
            scratch=root / "scratch",
            module_paths=(self._code,),
            variables={name: os.environ[name] for name in _VISIBLE_GPUS if name in os.environ},
            resources=_ANYTHING,
            sandbox=surroundings["sandbox"],
            hidden=(Path("~").expanduser(), root),
            # Ray's workers kill their children when they end, and a server killed so cannot end what it runs. One of
            # the node's pool is nobody's child, and serves all workers of the node.
            pool=pool_directory({}, root / "workers"),
            idle_seconds=surroundings["idle_seconds"],
        )
        self._executor.start(self._ended.put)
        self._calls = 0

    def answer(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
        """Raises InfrastructureError and OSError for trouble of this machine."""
        if head["call"] != "compare" and head["surroundings"]["likeness"] != self._digest_of_likeness:
            return {"likeness": self._likeness, "node": socket.gethostname()}, []
        calls: dict[str, Callable[[Mapping[str, Any], Sequence[bytes]], Answer]] = {
            "compare": self._compare,
            "execute": self._execute,
            "take": self._take,
            "give": self._give,
        }
        return calls[head["call"]](head, blobs)

    def _compare(self, _head: Mapping[str, Any], _blobs: Sequence[bytes]) -> Answer:
        return {"likeness": self._likeness, "node": socket.gethostname(), "is_shared": self._is_shared}, []

    # Blobs

    def _take(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
        digest = Digest.parse(head["digest"])
        for blob in blobs:
            self._incoming.write(digest, head["offset"], blob)
        return {"is_there": head["is_last"] and self._incoming.finish(digest, self._store)}, []

    def _give(self, head: Mapping[str, Any], _blobs: Sequence[bytes]) -> Answer:
        try:
            piece = piece_of(self._store, Digest.parse(head["digest"]), head["offset"], head["size"])
        except BlobMissingError:
            return {"is_missing": True}, []
        return {}, [piece]

    # Actions

    def _execute(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
        began = time.monotonic()
        request = request_from_json(head["request"])
        for blob in blobs:
            self._store.put_bytes(blob, durable=False)
        code = [(path, Digest.parse(digest)) for path, digest in head["code"]]
        needed = [*(entry.digest for entry in request.inputs), *(digest for _, digest in code)]
        missing = self._store.missing(needed)
        if missing:
            missing = self._remote.fetch(missing)
        if missing:
            return {"wants": [str(digest) for digest in missing]}, []
        self._lay_out_code(head["code"], code)
        fetched = time.monotonic() - began
        outcome = self._run(request)
        ended = time.monotonic()
        held, beside = self._hand_over(outcome, doubted=set(head["doubted"]))
        outcome = replace(
            outcome,
            node=socket.gethostname(),
            worker=f"{socket.gethostname()}/{os.getpid()}",
            input_seconds=outcome.input_seconds + fetched,
            output_seconds=outcome.output_seconds + time.monotonic() - ended,
            run_seconds=time.monotonic() - began,
        )
        self._calls += 1
        if self._calls % _KEPT_CALLS == 0:
            self._store.release()
        is_full = outcome.kind is OutcomeKind.ENVIRONMENT and _is_full(outcome.message)
        told = {"outcome": outcome_to_json(outcome), "held": held, "is_full": is_full, **self._remote.told()}
        return told, [outcome.log, *beside]

    def _run(self, request: ExecutionRequest) -> ExecutionOutcome:
        self._executor.submit(request)
        deadline = None
        while True:
            try:
                return self._ended.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"{request.identifier} could not be stopped") from None
            except KeyboardInterrupt:  # Ray's way to say that a task is cancelled
                self._executor.cancel(request.identifier)
                deadline = time.monotonic() + _STOP_SECONDS

    def _hand_over(self, outcome: ExecutionOutcome, *, doubted: set[str]) -> tuple[list[str], list[bytes]]:
        """Send outputs to where the build finds them: those that stay here alone, and the content of small ones.

        What is `doubted` stays here: it was sent to the remote before, and is not there.
        """
        if self._is_shared or outcome.kind is not OutcomeKind.SUCCEEDED:
            return [], []
        digests = sorted({entry.digest for entry in outcome.outputs}, key=lambda digest: digest.size_bytes)
        beside: list[bytes] = []
        left: list[Digest] = []
        room = _ANSWER_BYTES
        for digest in digests:
            if digest.size_bytes <= min(SMALL_BYTES, room):
                beside.append(self._store.read(digest))
                room -= digest.size_bytes
            else:
                left.append(digest)
        kept = [digest for digest in left if str(digest) in doubted]
        kept += self._remote.send([digest for digest in left if str(digest) not in doubted])
        return [str(digest) for digest in kept], beside

    def _lay_out_code(self, told: list[list[Any]], code: Sequence[tuple[str, Digest]]) -> None:
        """Put the modules of the workspace's own stages where this process's actions find them."""
        if told == self._code_there:
            return
        self._code_there = []
        for entry in list(self._code.iterdir()):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for path, digest in code:
            file = self._code / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self._store.read(digest))
        self._code_there = told


@cache
def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _is_full(message: str) -> bool:
    return "no space left" in message.lower()
