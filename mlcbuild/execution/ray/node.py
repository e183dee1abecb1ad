"""What a process on a Ray node does for a build: it runs actions from the node's store, and receives and sends blobs.

Ray calls `serve` with bytes, one call at a time, and gets bytes back. Between calls the process keeps what it has
started. `serve` raises no errors of a build or a machine; they are in the answer. A call is a JSON object with the name
of the `call` and the build's `context`, as `BuildContext` writes it.
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
from mlcbuild.execution.ray.announcements import Announcer
from mlcbuild.execution.ray.environment_fingerprint import this_environment
from mlcbuild.execution.ray.frames import pack, unpack
from mlcbuild.execution.ray.messages import environment_to_json, outcome_to_json, request_from_json
from mlcbuild.execution.ray.node_remote import NodeRemote
from mlcbuild.execution.ray.node_store import Incoming, piece_of, root_on_node
from mlcbuild.execution.scratch import Scratch
from mlcbuild.execution.server_pool import pool_directory
from mlcbuild.toolchains.table import Toolchains

Answer = tuple[dict[str, Any], list[bytes]]

# Blobs of up to this size travel in messages, as long as all blobs of a message together stay below the next two.
SMALL_BYTES = 64 << 10
REQUEST_BYTES = 512 << 10
_ANSWER_BYTES = 32 << 20
_POLL_SECONDS = 0.1
_STOP_SECONDS = 5.0
_KEPT_CALLS = 100
_VISIBLE_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

# Ray has already checked that the node has what the action requires.
_ANYTHING = MachineResources(cpus=1 << 16, gpus=float(1 << 16))

_workers: dict[tuple[str, str], NodeWorker] = {}
_announcer = Announcer()


def serve(data: bytes) -> bytes:
    """Answer a call. Raises KeyError or ValueError for what is not a call."""
    head, blobs = unpack(data)
    context = head["context"]
    if head["call"] == "execute":
        _announcer.announce(context.get("announce"), head["number"], _node_id())
    key = (context["identity"], context["function"])
    try:
        if key not in _workers:
            _workers[key] = NodeWorker(context)
        answer, blobs = _workers[key].answer(head, blobs)
    except (InfrastructureError, OSError) as error:
        answer, blobs = {"error": str(error), "disk_is_full": _disk_is_full(str(error))}, []
    return pack({**answer, "node_id": _node_id()}, blobs)


class NodeWorker:
    """The work for one build in this process. Raises InfrastructureError if the node's store cannot be opened."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        root, self._shares_store = root_on_node(context["store"], context["identity"])
        self._store = DiskStore(root, DigestFunction(context["function"]))
        self._incoming = Incoming(root)
        self._remote = NodeRemote(context["remote"], self._store)
        toolchains = Toolchains(root / "node-toolchains.json")
        self._environment = this_environment(context["toolchains"], toolchains)
        try:
            toolchains.save()
        except (InfrastructureError, OSError):
            pass  # The next process computes it again.
        self._environment_digest = self._environment.digest
        self._code = Scratch(root / "scratch").new()
        self._laid_out_code: Sequence[tuple[str, Digest]] = []
        self._ended: queue.SimpleQueue[ExecutionOutcome] = queue.SimpleQueue()
        self._executor = LocalExecutor(
            self._store,
            jobs=1,
            scratch=root / "scratch",
            module_paths=(self._code,),
            variables={name: os.environ[name] for name in _VISIBLE_GPUS if name in os.environ},
            resources=_ANYTHING,
            sandbox=context["sandbox"],
            hidden=(Path("~").expanduser(), root),
            # Ray's workers kill their children when they end, and a fork server that is killed cannot end the actions
            # that it runs. A server of the node's pool is no child of a worker, and serves all workers of the node.
            pool=pool_directory({}, root / "workers"),
            idle_seconds=context["idle_seconds"],
        )
        self._executor.start(self._ended.put)
        self._calls = 0

    def answer(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
        """Raises InfrastructureError and OSError for errors of this machine."""
        if head["call"] != "describe" and head["context"]["environment"] != self._environment_digest:
            return self._describe(head, blobs)
        calls: dict[str, Callable[[Mapping[str, Any], Sequence[bytes]], Answer]] = {
            "describe": self._describe,
            "execute": self._execute,
            "put piece": self._put_piece,
            "get piece": self._get_piece,
        }
        return calls[head["call"]](head, blobs)

    def _describe(self, _head: Mapping[str, Any], _blobs: Sequence[bytes]) -> Answer:
        return {"environment": environment_to_json(self._environment), "shares_store": self._shares_store}, []

    # Blobs

    def _put_piece(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> Answer:
        digest = Digest.parse(head["digest"])
        for blob in blobs:
            self._incoming.write(digest, head["offset"], blob)
        return {"is_stored": head["is_last"] and self._incoming.finish(digest, self._store)}, []

    def _get_piece(self, head: Mapping[str, Any], _blobs: Sequence[bytes]) -> Answer:
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
            return {"missing": [str(digest) for digest in missing]}, []
        self._lay_out_code(code)
        fetched = time.monotonic() - began
        outcome = self._run(request)
        ended = time.monotonic()
        kept, small = self._hand_over(outcome, doubted=set(head["doubted"]))
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
        answer = {
            "outcome": outcome_to_json(outcome),
            "kept": kept,
            "disk_is_full": outcome.kind is OutcomeKind.ENVIRONMENT and _disk_is_full(outcome.message),
            "sent": self._remote.take_sent(),
            "remote_errors": self._remote.take_errors(),
        }
        return answer, [outcome.log, *small]

    def _run(self, request: ExecutionRequest) -> ExecutionOutcome:
        self._executor.submit(request)
        deadline = None
        while True:
            try:
                return self._ended.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"{request.identifier} could not be stopped") from None
            except KeyboardInterrupt:  # This is how Ray cancels a task.
                self._executor.cancel(request.identifier)
                deadline = time.monotonic() + _STOP_SECONDS

    def _hand_over(self, outcome: ExecutionOutcome, *, doubted: set[str]) -> tuple[list[str], list[bytes]]:
        """Send outputs to where the build finds them. Returns those that are only here, and the content of small ones.

        Blobs that are `doubted` stay here: they were sent to the remote before, and were not there later.
        """
        if self._shares_store or not outcome.outputs:
            return [], []
        digests = sorted({entry.digest for entry in outcome.outputs}, key=lambda digest: digest.size_bytes)
        small: list[bytes] = []
        large: list[Digest] = []
        room = _ANSWER_BYTES
        for digest in digests:
            if digest.size_bytes <= min(SMALL_BYTES, room):
                small.append(self._store.read(digest))
                room -= digest.size_bytes
            else:
                large.append(digest)
        kept = [digest for digest in large if str(digest) in doubted]
        kept += self._remote.send([digest for digest in large if str(digest) not in doubted])
        return [str(digest) for digest in kept], small

    def _lay_out_code(self, code: Sequence[tuple[str, Digest]]) -> None:
        """Put the modules of the workspace's own stages where this process's actions find them."""
        if code == self._laid_out_code:
            return
        self._laid_out_code = []
        for entry in list(self._code.iterdir()):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for path, digest in code:
            file = self._code / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self._store.read(digest))
        self._laid_out_code = code


@cache
def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _disk_is_full(message: str) -> bool:
    return "no space left" in message.lower()
