"""The only process that talks to Ray: `python -m mlcbuild.execution.ray.bridge DESCRIPTOR`.

Ray ends the process that uses it if the cluster's head stays away. It also starts threads, sets signal handlers, and
takes a second to import. All of that happens here and not in the build's process. The build sends frames over the
inherited socket DESCRIPTOR:

- first `{"address": host:port or "", "jobs": …, "labels": …}`: connect, or start a cluster on this machine;
- `{"do": "call", "number": …, "options": …}` with bytes for `node.serve`, which runs with these options of a Ray task;
- `{"do": "cancel", "number": …, "force": …}`.

It gets back `{"is": "ready", "announce": …}` (what calls have to carry) or `{"is": "not connected", "message": …,
"may_retry": …}`; `{"is": "nodes", "nodes": …}` at first and after every change; `{"is": "silent", "nodes": …}` with the
nodes that do not answer, every few seconds while there are any; and for each call `{"is": "begun", "number": …, "node":
…}` when a node begins it, and `{"is": "answer", "number": …}` with bytes, or `{"is": "failure", …}` with its `kind`.
When the build closes the socket, this process ends everything that it started, and then itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import Future
from typing import Any

from mlcbuild.execution.ray import node
from mlcbuild.execution.ray.announcements import Announcements
from mlcbuild.execution.ray.call_failures import connection_failure, failure_of
from mlcbuild.execution.ray.frames import Receiver, send
from mlcbuild.execution.ray.silence import Address, Silence

_WATCH_SECONDS = 1.0
_LOOK_SECONDS = 2.0
_HEAD_SECONDS = 20.0  # as Ray waits for a head that refuses connections
_ROUTE_SECONDS = 2.0
_OBJECT_STORE_BYTES = 256 << 20  # for blobs that are moved in pieces


class Bridge:
    """The pending calls, by number."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._calls: dict[int, Any] = {}
        self._serve: Any = None
        self._serve_once: Any = None
        self._functions: dict[str, Any] = {}
        self._announcements: Announcements | None = None
        self._head: Address | None = None  # of a cluster that was there before
        self._addresses: dict[str, Address] = {}  # of the nodes that Ray believes alive, by identifier
        self._stopped = threading.Event()

    def run(self) -> None:
        receiver = Receiver(self._connection)
        first = receiver.receive()
        if first is None:
            return
        try:
            self._connect(first[0])
        except Exception as error:
            message, may_retry = connection_failure(error)
            self._tell({"is": "not connected", "message": message, "may_retry": may_retry})
            return
        self._tell({"is": "ready", "announce": self._announcements.target if self._announcements else None})
        threading.Thread(target=self._watch, name="nodes", daemon=True).start()
        threading.Thread(target=self._watch_silence, name="silence", daemon=True).start()
        while (frame := receiver.receive()) is not None:
            head, payload = frame
            if head["do"] == "call":
                self._call(head["number"], head["options"], payload)
            else:
                self._cancel(head["number"], force=head["force"])
        self._stopped.set()

    def _connect(self, request: dict[str, Any]) -> None:
        import ray

        common: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": "error"}
        if request["address"]:
            _check_token(request["address"])
            ray.init(address=request["address"], **common)
            host, _, port = request["address"].rpartition(":")
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            self._head = (str(found[0][4][0]), int(port))
        else:
            ray.init(
                num_cpus=request["jobs"],
                num_gpus=request["gpus"],
                labels=request["labels"],
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                _node_ip_address="127.0.0.1",
                _temp_dir=request["temporary"],
                **common,
            )
        self._serve = ray.remote(max_retries=0)(node.serve)
        try:
            self._announcements = Announcements(
                ray.util.get_node_ip_address(),
                lambda number, node: self._tell({"is": "begun", "number": number, "node": node}),
            )
        except OSError:
            pass  # Then the build does not know which calls a silent node had.
        # A process sees the GPUs that it had when it started, so a process with GPUs serves one call.
        self._serve_once = ray.remote(max_retries=0, max_calls=1)(node.serve)

    def _call(self, number: int, options: dict[str, Any], payload: bytes) -> None:
        try:
            reference = self._function(options).remote(payload)
        except Exception as error:
            self._fail(number, error)
            return
        self._calls[number] = reference
        reference.future().add_done_callback(lambda future: self._ended(number, future))

    def _function(self, options: dict[str, Any]) -> Any:
        """`serve` with these options. Kept, because Ray takes its time to read options."""
        key = json.dumps(options, sort_keys=True)
        if key not in self._functions:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            place = options.pop("node", "")
            if place:
                options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(place, soft=False)
            serve = self._serve_once if options.get("num_gpus") else self._serve
            self._functions[key] = serve.options(**options)
        return self._functions[key]

    def _ended(self, number: int, future: Future[bytes]) -> None:
        self._calls.pop(number, None)
        error = future.exception()
        if error is None:
            self._tell({"is": "answer", "number": number}, future.result())
        else:
            self._fail(number, error)

    def _fail(self, number: int, error: BaseException) -> None:
        failure = failure_of(error)
        told = {"kind": failure.kind.value, "message": failure.message, "peak_bytes": failure.peak_bytes}
        self._tell({"is": "failure", "number": number, "address": failure.address, **told})

    def _cancel(self, number: int, *, force: bool) -> None:
        import ray

        reference = self._calls.get(number)
        if reference is not None:
            try:
                ray.cancel(reference, force=force, recursive=False)
            except Exception as error:
                self._fail(number, error)

    def _watch(self) -> None:
        import ray

        known: object = None
        while not self._stopped.is_set():
            try:
                alive = [found for found in ray.nodes() if found["Alive"]]
                nodes = [_node_to_json(found) for found in alive]
            except Exception:
                time.sleep(_WATCH_SECONDS)
                continue
            self._addresses = {
                found["NodeID"]: (found["NodeManagerAddress"], found["NodeManagerPort"]) for found in alive
            }
            if nodes != known:
                known = nodes
                self._tell({"is": "nodes", "nodes": nodes})
            self._stopped.wait(_WATCH_SECONDS)

    def _watch_silence(self) -> None:
        silence, known = Silence(), frozenset[str]()
        of_head = Silence(seconds=_HEAD_SECONDS)
        while not self._stopped.wait(_LOOK_SECONDS):
            if self._head is not None and of_head.look({"head": self._head}):
                # Ray's calls to it would hang. It is the end of the connection, as if the head had died.
                print("the head of the cluster does not answer", file=sys.stderr, flush=True)
                os._exit(1)
            silent = silence.look(self._addresses)
            if silent or silent != known:
                known = silent
                self._tell({"is": "silent", "nodes": sorted(silent)})

    def _tell(self, head: dict[str, Any], payload: bytes = b"") -> None:
        with self._sending:
            try:
                send(self._connection, head, payload)
            except OSError:
                pass  # The build closed the socket, which the loop in `run` notices.


def _check_token(address: str) -> None:
    """Raises Ray's AuthenticationError if a cluster does not accept our token. `ray.init` would try for twenty seconds
    and then not say why it gives up.
    """
    import ray
    from ray.exceptions import AuthenticationError

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ROUTE_SECONDS).close()
        ray._raylet.GcsClient(address=address)
    except AuthenticationError:
        raise
    except Exception:
        pass  # The connection itself will fail in the same way.


def _node_to_json(found: dict[str, Any]) -> dict[str, Any]:
    resources = found["Resources"]
    return {
        "id": found["NodeID"],
        "name": found["NodeManagerHostname"],
        "address": found["NodeManagerAddress"],
        "cpus": resources.get("CPU", 0.0),
        "gpus": resources.get("GPU", 0.0),
        "memory_bytes": int(resources.get("memory", 0)),
        "labels": sorted((found.get("Labels") or {}).items()),
    }


def main() -> int:
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The build decides when this process ends.
    Bridge(connection).run()
    if "ray" in sys.modules:
        import ray

        ray.shutdown()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
