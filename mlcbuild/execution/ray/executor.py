"""Run actions on a Ray cluster: each is a Ray task on a node, which works from a store of its own.

Digests travel with a request. What a node lacks it fetches from the build's remote cache, or says so and is sent it;
what it made it keeps, puts into that remote, or is asked for. Ray repeats nothing by itself: what is lost is told to
the engine.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.store import BlobMissingError
from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, OutcomeKind
from mlcbuild.errors import MlcbuildError
from mlcbuild.execution.machine_resources import MachineResources, refusal, this_machine
from mlcbuild.execution.ray.cluster import Cluster, NodeLostError, NodeTroubleError, State, Surroundings
from mlcbuild.execution.ray.couriers import Couriers
from mlcbuild.execution.ray.faults import Fault
from mlcbuild.execution.ray.frames import pack
from mlcbuild.execution.ray.messages import outcome_from_json, request_to_json
from mlcbuild.execution.ray.node import REQUEST_BYTES, SMALL_BYTES
from mlcbuild.execution.ray.settings import RaySettings

_STOP_SECONDS = 8.0  # for a node to stop an action, until its worker is killed
_UNKNOWN_PEAK_BYTES = 1 << 30  # of who was killed for memory, where nobody says how much it had
_IDLE_SECONDS = 60.0  # until a fork server on a node ends that nobody uses
_IDLE_SECONDS_HERE = 2.0  # where the cluster ends with the build
_ROUNDS = 4  # how often a node may say that it lacks something


@dataclass(kw_only=True, eq=False)
class _Flight:
    """An action that was given to the cluster."""

    request: ExecutionRequest
    submitted: float
    code: list[list[str]]
    number: int = 0  # of its call; 0 where none is under way
    rounds: int = 0
    is_cancelled: bool = False
    is_done: bool = False
    timer: threading.Timer | None = field(default=None)


class RayExecutor:
    """An `Executor`, which is given `slots` actions at the most. `module_paths` are where modules of a workspace's own
    stages lie; `likeness` answers what every node must have in common with this machine, for `toolchains`. `fetch`
    brings blobs of the remote into the store and answers those that it lacks. `say` takes what people should know, from
    any thread.

    Nothing is started before the first question, and nobody waits for a cluster but the actions that are for it. With
    `falls_back` one that cannot be reached refuses every action; without, `refusal` raises InfrastructureError then.
    """

    name = "ray"

    def __init__(
        self,
        store: DiskStore,
        *,
        settings: RaySettings,
        slots: int,
        toolchains: Sequence[str],
        likeness: Callable[[], Mapping[str, str]],
        module_paths: tuple[Path, ...] = (),
        falls_back: bool = False,
        trip_seconds: float = 0.0,
        fetch: Callable[[Sequence[Digest]], tuple[Digest, ...]] = tuple,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._fetch = fetch
        self._most = slots
        self.trip_seconds = trip_seconds
        self._store = store
        self._module_paths = module_paths
        self._falls_back = falls_back
        self._say = say
        self._said: set[str] = set()
        self._report: Callable[[ExecutionOutcome], None] | None = None
        self._lock = threading.Lock()
        self._flights: dict[str, _Flight] = {}
        self._waiting: list[_Flight] = []  # for the cluster
        self._machine = this_machine() if falls_back else MachineResources(cpus=0)
        self._numbers = itertools.count(1)
        self._surroundings = Surroundings(
            root=store.root,
            function=store.function,
            remote=settings.remote,
            toolchains=tuple(toolchains),
            sandbox=settings.sandbox,
            idle_seconds=_IDLE_SECONDS if settings.address else _IDLE_SECONDS_HERE,
        )
        self._settings = settings
        self._cluster = Cluster(
            settings,
            surroundings=self._surroundings,
            likeness=likeness,
            numbers=self._numbers,
            say=self._say_once,
            on_ready=self._settle_waiting,
            on_lost=self._on_cluster_lost,
            on_failed=self._on_cluster_failed,
        )
        self._roster = self._cluster.roster
        self._couriers = Couriers(self._cluster, store, self._say_once)
        self._sent: set[Digest] = set()  # by nodes, to the remote
        self._sent_by: dict[str, tuple[Digest, ...]] = {}  # the same, by action
        self._doubted: set[Digest] = set()  # what was sent and was not found there
        self._closed = False

    # The executor's door.

    @property
    def slots(self) -> int:
        """Twice the cpus of the cluster, so that none of them waits for us; all there may be where it can grow."""
        cpus = self._roster.cpus
        return self._most if self._settings.may_scale_to else max(1, min(self._most, 2 * cpus))

    def refusal(self, requirements: ExecutionRequirements) -> str:
        """While the cluster is being connected to, nothing is refused but what this machine can do instead."""
        self._cluster.connect()
        match self._cluster.state:
            case State.READY:
                return self._roster.refusal(requirements)
            case State.FAILED:
                if not self._falls_back:
                    raise self._cluster.error
                return self._cluster.error.message
            case _ if self._falls_back and not refusal(self._machine, requirements):
                return "it is not connected yet"
            case _:
                return ""

    def start(self, report: Callable[[ExecutionOutcome], None]) -> None:
        self._report = report

    def reaches(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        """What nodes have put into the remote in this build."""
        with self._lock:
            return frozenset(self._sent.intersection(digests))

    def submit(self, request: ExecutionRequest) -> None:
        if self._report is None:
            raise RuntimeError("start() comes before submit()")
        flight = _Flight(request=request, submitted=time.monotonic(), code=[])
        with self._lock:
            if self._closed:
                raise RuntimeError(f"{request.identifier} was submitted to a closed executor")
            self._flights[request.identifier] = flight
            # Who runs again made something that has gone since, and nodes remember what they have sent.
            self._doubt(self._sent_by.pop(request.identifier, ()))
            waits = self._cluster.state is not State.READY
            if waits:
                self._waiting.append(flight)
        if not waits:
            self._begin(flight)
        else:
            self._settle_waiting()  # In case that it has just been connected to.

    def cancel(self, identifier: str) -> None:
        """The node stops the action with all its processes, or its worker is killed; CANCELLED in any case."""
        with self._lock:
            flight = self._flights.get(identifier)
            if flight is None or flight.is_cancelled:
                return
            flight.is_cancelled = True
            number = flight.number
            is_waiting = flight in self._waiting
            if is_waiting:
                self._waiting.remove(flight)
            flight.timer = threading.Timer(_STOP_SECONDS, self._kill, (flight,))
            flight.timer.daemon = True
            flight.timer.start()
        if is_waiting:
            self._fail(flight, OutcomeKind.CANCELLED, "")
        elif number:
            self._cluster.cancel(number, force=False)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            flights = list(self._flights.values())
        for flight in flights:
            flight.is_cancelled = True
        self._cluster.close()
        self._couriers.close()
        for flight in flights:
            self._fail(flight, OutcomeKind.CANCELLED, "")

    # On the way there.

    def _settle_waiting(self) -> None:
        """What waited for the cluster goes there, or is told what became of it."""
        with self._lock:
            if self._cluster.state not in (State.READY, State.FAILED):
                return
            waiting, self._waiting = self._waiting, []
        for flight in waiting:
            if flight.is_done:
                continue
            if self._cluster.state is not State.FAILED:
                self._begin(flight)
            elif self._falls_back:
                self._fail(flight, OutcomeKind.LOST, self._cluster.error.message)
            else:
                self._fail(flight, OutcomeKind.ENVIRONMENT, str(self._cluster.error))

    def _begin(self, flight: _Flight) -> None:
        try:
            if reason := self._roster.refusal(flight.request.requirements):
                kind = OutcomeKind.LOST if self._falls_back else OutcomeKind.ENVIRONMENT
                self._fail(flight, kind, f"{flight.request.identifier} can run nowhere: {reason}")
                return
            flight.code = self._code_of(flight.request)
            self._send(flight)
        except (MlcbuildError, OSError) as error:
            self._fail(flight, OutcomeKind.ENVIRONMENT, str(error))

    def _send(self, flight: _Flight, node: str = "") -> None:
        """Ask for a run, on `node`, an identifier, or on whichever has what it needs."""
        request = flight.request
        options = self._roster.options_for(request.requirements)
        if node:
            options["node"] = node
            options.pop("label_selector", None)  # The node was chosen by it already.
        head = {
            "call": "execute",
            "surroundings": self._cluster.surroundings(),
            "request": request_to_json(request),
            "code": flight.code,
            "doubted": self._all_doubted(),
        }
        blobs = [] if self._roster.all_share or node else self._small_inputs(flight)
        payload = pack(head, blobs)
        number = next(self._numbers)
        with self._lock:
            if flight.is_cancelled:
                flight.number = 0
            else:
                flight.number = number
        if not flight.number:
            self._fail(flight, OutcomeKind.CANCELLED, "")
            return
        self._cluster.call(
            number,
            options,
            payload,
            on_answer=lambda head, blobs: self._on_answer(flight, head, blobs),
            on_fault=lambda fault: self._on_fault(flight, fault),
        )

    def _doubt(self, digests: Sequence[Digest]) -> None:
        """Called with the lock held."""
        self._sent.difference_update(digests)
        self._doubted.update(digests)

    def _all_doubted(self) -> list[str]:
        with self._lock:
            return sorted(map(str, self._doubted))

    def _small_inputs(self, flight: _Flight) -> list[bytes]:
        digests = {entry.digest for entry in flight.request.inputs} | {Digest.parse(text) for _, text in flight.code}
        blobs = []
        room = REQUEST_BYTES
        for digest in sorted(digests, key=lambda digest: digest.size_bytes):
            if digest.size_bytes > min(SMALL_BYTES, room):
                break
            try:
                blobs.append(self._store.read(digest))
            except BlobMissingError:
                continue
            room -= digest.size_bytes
        return blobs

    def _code_of(self, request: ExecutionRequest) -> list[list[str]]:
        """The workspace's files that a stage's code is made of, in the store: [path, digest] pairs."""
        found = []
        for path in request.code:
            files = [root / path for root in self._module_paths if (root / path).is_file()]
            found += [[path, str(self._store.put_file(file))] for file in files[:1]]
        return found

    # On the way back.

    def _on_answer(self, flight: _Flight, head: Mapping[str, Any], blobs: Sequence[bytes]) -> None:
        flight.number = 0
        node = head.get("node_id", "")
        if "likeness" in head:
            self._cluster.differs(node, head["likeness"])
            self._couriers.run(lambda: self._again(flight))
        elif "trouble" in head:
            self._on_trouble(flight, node, head["trouble"], is_full=head["is_full"])
        elif "wants" in head:
            self._couriers.run(lambda: self._bring(flight, node, [Digest.parse(text) for text in head["wants"]]))
        else:
            for trouble in head["troubles"]:
                self._say_once(f"a node of the Ray cluster has trouble with the remote cache: {trouble}")
            sent = tuple(map(Digest.parse, head["sent"]))
            with self._lock:
                self._sent.update(sent)
                self._sent_by[flight.request.identifier] = sent
            outcome = outcome_from_json(head["outcome"], log=blobs[0])
            if head["is_full"]:
                self._on_trouble(flight, node, outcome.message, is_full=True)
            elif head["held"] or len(blobs) > 1:
                self._couriers.run(lambda: self._take_home(flight, node, outcome, head["held"], blobs[1:]))
            else:
                self._finish(flight, outcome)

    def _again(self, flight: _Flight) -> None:
        reason = self._roster.refusal(flight.request.requirements)
        if reason:
            self._fail(flight, OutcomeKind.ENVIRONMENT, reason)
        else:
            self._send(flight)

    def _on_trouble(self, flight: _Flight, node: str, message: str, *, is_full: bool) -> None:
        """A machine's own trouble. A full disk keeps others from that node, as long as there are others."""
        if is_full and self._roster.avoid(node, "its disk is full"):
            self._fail(flight, OutcomeKind.LOST, f"{self._roster.name_of(node)}: {message.partition(chr(10))[0]}")
        else:
            self._fail(flight, OutcomeKind.ENVIRONMENT, f"{self._roster.name_of(node)}: {message}")

    def _bring(self, flight: _Flight, node: str, wanted: Sequence[Digest]) -> None:
        flight.rounds += 1
        missing = self._store.missing(wanted)
        if missing:
            missing = self._fetch(missing)
        if missing:
            with self._lock:
                self._doubt(missing)
            self._finish(
                flight,
                ExecutionOutcome(
                    identifier=flight.request.identifier, kind=OutcomeKind.INPUTS_MISSING, missing=missing
                ),
            )
            return
        if flight.rounds > _ROUNDS:
            self._fail(flight, OutcomeKind.LOST, f"{self._roster.name_of(node)} does not keep what it is sent")
            return
        try:
            for digest in wanted:
                self._couriers.bring(node, digest)
        except NodeLostError as error:
            self._fail(flight, OutcomeKind.LOST, str(error))
        except NodeTroubleError as error:
            self._on_trouble(flight, node, str(error), is_full=error.is_full)
        except (MlcbuildError, OSError) as error:
            self._fail(flight, OutcomeKind.ENVIRONMENT, str(error))
        else:
            self._send(flight, node)

    def _take_home(
        self, flight: _Flight, node: str, outcome: ExecutionOutcome, held: Sequence[str], blobs: Sequence[bytes]
    ) -> None:
        began = time.monotonic()
        try:
            for blob in blobs:
                self._store.put_bytes(blob)
            for text in held:
                self._couriers.fetch(node, Digest.parse(text))
        except NodeLostError as error:
            self._fail(flight, OutcomeKind.LOST, str(error))
        except NodeTroubleError as error:
            self._on_trouble(flight, node, str(error), is_full=error.is_full)
        except (MlcbuildError, OSError) as error:
            self._fail(flight, OutcomeKind.ENVIRONMENT, str(error))
        else:
            seconds = time.monotonic() - began
            self._finish(
                flight,
                replace(
                    outcome,
                    output_seconds=outcome.output_seconds + seconds,
                    run_seconds=outcome.run_seconds + seconds,
                ),
            )

    def _on_fault(self, flight: _Flight, fault: Fault) -> None:
        flight.number = 0
        peak = max(flight.request.requirements.memory_bytes, fault.peak_bytes) or _UNKNOWN_PEAK_BYTES
        message = f"{flight.request.identifier}: {fault.message}" if fault.message else ""
        self._fail(flight, fault.kind, message, peak_bytes=peak if fault.kind is OutcomeKind.OUT_OF_MEMORY else 0)

    def _on_cluster_lost(self, reason: str) -> None:
        with self._lock:
            flights = list(self._flights.values())
        for flight in flights:
            flight.number = 0
            self._fail(flight, OutcomeKind.LOST, reason)

    def _on_cluster_failed(self) -> None:
        if self._falls_back:
            self._say_once(f"the build goes on without the Ray cluster: {self._cluster.error}")
        self._settle_waiting()

    # Ends.

    def _kill(self, flight: _Flight) -> None:
        if flight.number:
            self._cluster.cancel(flight.number, force=True)
            time.sleep(1.0)
        self._fail(flight, OutcomeKind.CANCELLED, "")

    def _fail(self, flight: _Flight, kind: OutcomeKind, message: str, *, peak_bytes: int = 0) -> None:
        self._finish(
            flight,
            ExecutionOutcome(
                identifier=flight.request.identifier,
                kind=kind,
                message=message,
                run_seconds=time.monotonic() - flight.submitted,
                peak_bytes=peak_bytes,
            ),
        )

    def _finish(self, flight: _Flight, outcome: ExecutionOutcome) -> None:
        with self._lock:
            if flight.is_done:
                return
            flight.is_done = True
            self._flights.pop(flight.request.identifier, None)
            if flight.timer is not None:
                flight.timer.cancel()
        if flight.is_cancelled and outcome.kind is not OutcomeKind.CANCELLED:
            outcome = ExecutionOutcome(identifier=outcome.identifier, kind=OutcomeKind.CANCELLED)
        if not outcome.queued_seconds:
            waited = time.monotonic() - flight.submitted - outcome.run_seconds
            outcome = replace(outcome, queued_seconds=max(0.0, waited))
        assert self._report is not None
        self._report(outcome)

    def _say_once(self, message: str) -> None:
        with self._lock:
            if message in self._said:
                return
            self._said.add(message)
        self._say(message)
