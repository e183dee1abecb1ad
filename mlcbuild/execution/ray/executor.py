"""Runs actions on a Ray cluster: each is a Ray task on a node, which works with a store of its own.

A request travels with digests. A node fetches the blobs that it lacks from the build's remote cache, or asks for them
and gets them sent. It keeps what it made, and puts it into that remote or is asked for it. Ray itself repeats nothing:
what is lost is reported to the engine.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import DiskStore
from mlcbuild.engine.action import Action
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, OutcomeKind
from mlcbuild.errors import MlcbuildError
from mlcbuild.execution.machine_resources import MachineResources, this_machine, unmet_requirement
from mlcbuild.execution.ray.blob_transfer import BlobTransfer
from mlcbuild.execution.ray.build_context import BuildContext
from mlcbuild.execution.ray.call_failures import CallFailure
from mlcbuild.execution.ray.calls import NodeError, NodeLostError
from mlcbuild.execution.ray.cluster import Cluster, ClusterState
from mlcbuild.execution.ray.environment_fingerprint import EnvironmentFingerprint
from mlcbuild.execution.ray.execute_call import code_files, execute_call
from mlcbuild.execution.ray.messages import environment_from_json, outcome_from_json
from mlcbuild.execution.ray.node_failures import NodeFailures
from mlcbuild.execution.ray.remote_blobs import RemoteBlobs
from mlcbuild.execution.ray.settings import RaySettings
from mlcbuild.execution.ray.submissions import Submission, Submissions

_STOP_SECONDS = 8.0  # for a node to stop an action, before its worker is killed
_UNKNOWN_PEAK_BYTES = 1 << 30  # of a process that was killed for its memory, if nobody says how much it had
_IDLE_SECONDS = 60.0  # before a fork server without a client ends on a node
_IDLE_SECONDS_HERE = 2.0  # if the cluster ends with the build
_GROWING_SLOTS = 256  # beyond what a cluster that may grow can run now; an autoscaler sees them waiting
_MOST_NODES = 3  # An action that failed on so many nodes is not tried on another.
_ROUNDS = 4  # how often a node may say that it lacks a blob


class RayExecutor:
    """An `Executor`. It gets at most `slots` actions; None: as many as the cluster can use.

    `module_paths` are folders with the modules of a workspace's own stages. `environment` returns what every node must
    have in common with this machine, `toolchains` included. `fetch` brings blobs of the remote into the store and
    returns those that are still missing. `say` takes messages for people, from any thread.

    Nothing starts before the first question, and only actions for the cluster wait for it. With `falls_back`, a cluster
    that cannot be reached refuses every action; without it, `unmet_requirement` raises InfrastructureError then.
    """

    name = "ray"

    def __init__(
        self,
        store: DiskStore,
        *,
        settings: RaySettings,
        slots: int | None,
        toolchains: Sequence[str],
        environment: Callable[[], EnvironmentFingerprint],
        module_paths: tuple[Path, ...] = (),
        falls_back: bool = False,
        trip_seconds: float = 0.0,
        fetch: Callable[[Sequence[Digest]], tuple[Digest, ...]] = tuple,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._fetch = fetch
        self._most_slots = slots
        self.trip_seconds = trip_seconds
        self._store = store
        self._module_paths = module_paths
        self._falls_back = falls_back
        self._say = say
        self._said: set[str] = set()
        self._saying = threading.Lock()
        self._submissions = Submissions()
        self._here = this_machine() if falls_back else MachineResources(cpus=0)
        self._numbers = itertools.count(1)
        self._settings = settings
        self._cluster = Cluster(
            settings,
            context=BuildContext(
                root=store.root,
                function=store.function,
                remote=settings.remote,
                toolchains=tuple(toolchains),
                sandbox=settings.sandbox,
                idle_seconds=_IDLE_SECONDS if settings.address else _IDLE_SECONDS_HERE,
            ),
            environment=environment,
            numbers=self._numbers,
            say=self._say_once,
            on_ready=self._begin_waiting,
            on_lost=self._on_cluster_lost,
            on_failed=self._on_cluster_failed,
        )
        self._nodes = self._cluster.nodes
        self._transfer = BlobTransfer(self._cluster, store, self._say_once)
        self._remote_blobs = RemoteBlobs()
        self._failures = NodeFailures()

    # The interface of an executor

    @property
    def slots(self) -> int:
        """Twice the cpus of the cluster, so that none of them is ever idle.

        A cluster that can grow gets more, because only pending actions make it grow.
        """
        useful = max(1, 2 * self._nodes.cpus)
        if self._settings.may_scale_to:
            useful = self._most_slots or useful + _GROWING_SLOTS
        return useful if self._most_slots is None else min(self._most_slots, useful)

    def unmet_requirement(self, action: Action) -> str:
        """Before the cluster is connected, only what this machine can do instead is refused."""
        self._cluster.connect()
        match self._cluster.state:
            case ClusterState.READY:
                return self._nodes.unmet_requirement(action.requirements)
            case ClusterState.FAILED:
                if not self._falls_back:
                    raise self._cluster.error
                return self._cluster.error.message
            case _ if self._falls_back and not unmet_requirement(self._here, action.requirements):
                return "it is not connected yet"
            case _:
                return ""

    def start(self, report: Callable[[ExecutionOutcome], None]) -> None:
        self._submissions.start(report)

    def can_fetch(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        """The blobs that nodes have put into the remote in this build."""
        return self._remote_blobs.those_sent(digests)

    def submit(self, request: ExecutionRequest) -> None:
        self._remote_blobs.doubt_those_of(request.identifier)
        is_waiting = self._cluster.state is not ClusterState.READY
        submission = self._submissions.add(request, is_waiting=is_waiting)
        if is_waiting:
            self._begin_waiting()  # The cluster may have become ready just now.
        else:
            self._begin(submission)

    def cancel(self, identifier: str) -> None:
        """The node stops the action with all its processes, or its worker is killed. The outcome is CANCELLED."""
        submission = self._submissions.cancel(
            identifier, lambda submission: threading.Timer(_STOP_SECONDS, self._kill, (submission,))
        )
        if submission is None:
            return
        if submission.is_waiting:
            self._submissions.fail(submission, OutcomeKind.CANCELLED, "")
        elif submission.number:
            self._cluster.cancel(submission.number, force=False)

    def close(self) -> None:
        submissions = self._submissions.close()
        self._cluster.close()
        self._transfer.close()
        for submission in submissions:
            self._submissions.fail(submission, OutcomeKind.CANCELLED, "")

    # To the cluster

    def _begin_waiting(self) -> None:
        """Actions that waited for the cluster start, or fail if it failed."""
        if self._cluster.state not in (ClusterState.READY, ClusterState.FAILED):
            return
        for submission in self._submissions.take_waiting():
            if self._cluster.state is not ClusterState.FAILED:
                self._begin(submission)
            elif self._falls_back:
                self._submissions.fail(submission, OutcomeKind.LOST, self._cluster.error.message)
            else:
                self._submissions.fail(submission, OutcomeKind.ENVIRONMENT, str(self._cluster.error))

    def _begin(self, submission: Submission) -> None:
        try:
            if reason := self._nodes.unmet_requirement(submission.request.requirements):
                kind = OutcomeKind.LOST if self._falls_back else OutcomeKind.ENVIRONMENT
                self._submissions.fail(submission, kind, f"no node can run {submission.request.identifier}: {reason}")
                return
            submission.code = code_files(submission.request, self._store, self._module_paths)
            self._send(submission)
        except (MlcbuildError, OSError) as error:
            self._submissions.fail(submission, OutcomeKind.ENVIRONMENT, str(error))

    def _send(self, submission: Submission, node: str = "") -> None:
        """Have the action run, on `node` (an identifier) or on any node that has what it requires."""
        request = submission.request
        options = self._nodes.options_for(request.requirements, avoided=self._failures.nodes_of(request.identifier))
        if node:
            options["node"] = node
            options.pop("label_selector", None)  # The node was chosen by it before.
        number = next(self._numbers)
        payload = execute_call(
            request,
            submission.code,
            number=number,
            context=self._cluster.context,
            doubted=self._remote_blobs.doubted(),
            store=None if self._nodes.all_share_store or node else self._store,
        )
        if not self._submissions.begin_call(submission, number):
            self._submissions.fail(submission, OutcomeKind.CANCELLED, "")
            return
        self._cluster.call(
            number,
            options,
            payload,
            on_answer=lambda head, blobs: self._on_answer(submission, head, blobs),
            on_failure=lambda failure: self._on_failure(submission, failure),
            on_move=lambda: self._transfer.run(lambda: self._send_again(submission)),
        )

    def _send_again(self, submission: Submission) -> None:
        """A node has fallen silent, and this action has not begun on another."""
        try:
            self._send(submission)
        except (MlcbuildError, OSError) as error:
            self._submissions.fail(submission, OutcomeKind.ENVIRONMENT, str(error))

    # From the cluster

    def _on_answer(self, submission: Submission, head: Mapping[str, Any], blobs: Sequence[bytes]) -> None:
        submission.number = 0
        node = head.get("node_id", "")
        if "environment" in head:
            self._cluster.exclude_different(node, environment_from_json(head["environment"]))
            self._transfer.run(lambda: self._send_elsewhere(submission))
        elif "error" in head:
            self._on_node_error(submission, node, head["error"], disk_is_full=head["disk_is_full"])
        elif "missing" in head:
            missing = [Digest.parse(text) for text in head["missing"]]
            self._transfer.run(lambda: self._send_inputs(submission, node, missing))
        else:
            for error in head["remote_errors"]:
                self._say_once(f"a node of the Ray cluster could not use the remote cache: {error}")
            self._remote_blobs.sent(submission.request.identifier, tuple(map(Digest.parse, head["sent"])))
            outcome = outcome_from_json(head["outcome"], log=blobs[0])
            if outcome.kind is OutcomeKind.ENVIRONMENT:
                self._on_node_error(submission, node, outcome.message, disk_is_full=head["disk_is_full"])
                return
            if outcome.kind is OutcomeKind.SUCCEEDED:
                self._nodes.count_success(node)
                self._failures.forget(submission.request.identifier)
            if head["kept"] or len(blobs) > 1:
                kept = [Digest.parse(text) for text in head["kept"]]
                self._transfer.run(lambda: self._fetch_outputs(submission, node, outcome, kept, blobs[1:]))
            else:
                self._submissions.finish(submission, outcome)

    def _send_elsewhere(self, submission: Submission) -> None:
        reason = self._nodes.unmet_requirement(submission.request.requirements)
        if reason:
            self._submissions.fail(submission, OutcomeKind.ENVIRONMENT, reason)
        else:
            self._send(submission)

    def _on_node_error(self, submission: Submission, node: str, message: str, *, disk_is_full: bool) -> None:
        """An error of one machine: the action runs again on another one, if there is another one that can run it.

        A node gets no more actions if its disk is full, or if it fails three times in a row. An action that fails on
        several nodes fails for good, and none of them is to blame.
        """
        request = submission.request
        name, first_line = self._nodes.name_of(node), message.partition("\n")[0]
        if disk_is_full and self._nodes.exclude(node, "its disk is full", even_the_last=self._falls_back):
            self._submissions.fail(submission, OutcomeKind.LOST, f"{name}: {first_line}")
            return
        failed_on = self._failures.add(request.identifier, node)
        others = self._nodes.can_run(request.requirements, without=failed_on)
        if len(failed_on) < _MOST_NODES and (others or self._falls_back):
            if self._nodes.count_failure(node, first_line, even_the_last=self._falls_back):
                self._cluster.move_waiting()
            self._submissions.fail(submission, OutcomeKind.LOST, f"{name}: {first_line}")
            return
        self._nodes.forgive(failed_on)
        self._failures.forget(request.identifier)
        where = name if len(failed_on) == 1 else f"{len(failed_on)} nodes of the cluster; the last of them, {name}"
        self._submissions.fail(submission, OutcomeKind.ENVIRONMENT, f"{where}: {message}")

    def _on_loss(self, submission: Submission, node: str, message: str) -> None:
        """A node lost the action, or what it made. It may do so again, so the action runs elsewhere."""
        if not submission.is_cancelled and not self._nodes.is_lost(node):
            self._failures.add(submission.request.identifier, node)
            if self._nodes.count_failure(node, message):
                self._cluster.move_waiting()
        self._submissions.fail(submission, OutcomeKind.LOST, message)

    def _send_inputs(self, submission: Submission, node: str, wanted: Sequence[Digest]) -> None:
        submission.rounds += 1
        missing = self._store.missing(wanted)
        if missing:
            missing = self._fetch(missing)
        if missing:
            self._remote_blobs.doubt(missing)
            identifier = submission.request.identifier
            outcome = ExecutionOutcome(identifier=identifier, kind=OutcomeKind.INPUTS_MISSING, missing=missing)
            self._submissions.finish(submission, outcome)
            return
        if submission.rounds > _ROUNDS:
            self._on_loss(submission, node, f"{self._nodes.name_of(node)} does not keep the blobs that it is sent")
            return

        def send() -> None:
            for digest in wanted:
                self._transfer.send(node, digest)

        if self._moved(submission, node, send):
            self._send(submission, node)

    def _fetch_outputs(
        self,
        submission: Submission,
        node: str,
        outcome: ExecutionOutcome,
        kept: Sequence[Digest],
        blobs: Sequence[bytes],
    ) -> None:
        began = time.monotonic()

        def fetch() -> None:
            for blob in blobs:
                self._store.put_bytes(blob)
            for digest in kept:
                self._transfer.fetch(node, digest)

        if self._moved(submission, node, fetch):
            seconds = time.monotonic() - began
            outcome = replace(
                outcome,
                output_seconds=outcome.output_seconds + seconds,
                run_seconds=outcome.run_seconds + seconds,
            )
            self._submissions.finish(submission, outcome)

    def _moved(self, submission: Submission, node: str, move: Callable[[], None]) -> bool:
        """Whether blobs could be moved. If not, the action has failed."""
        try:
            move()
        except NodeLostError as error:
            self._on_loss(submission, node, str(error))
        except NodeError as error:
            self._on_node_error(submission, node, str(error), disk_is_full=error.disk_is_full)
        except (MlcbuildError, OSError) as error:
            self._submissions.fail(submission, OutcomeKind.ENVIRONMENT, str(error))
        else:
            return True
        return False

    def _on_failure(self, submission: Submission, failure: CallFailure) -> None:
        submission.number = 0
        if failure.kind is OutcomeKind.ENVIRONMENT and failure.node:
            self._on_node_error(submission, failure.node, failure.message, disk_is_full=False)
            return
        if failure.kind is OutcomeKind.LOST and failure.node:
            told = f"{submission.request.identifier}: {failure.message}: {self._nodes.name_of(failure.node)}"
            self._on_loss(submission, failure.node, told)
            return
        is_memory = failure.kind is OutcomeKind.OUT_OF_MEMORY
        peak = max(submission.request.requirements.memory_bytes, failure.peak_bytes) or _UNKNOWN_PEAK_BYTES
        message = f"{submission.request.identifier}: {failure.message}" if failure.message else ""
        self._submissions.fail(submission, failure.kind, message, peak_bytes=peak if is_memory else 0)

    def _on_cluster_lost(self, reason: str) -> None:
        for submission in self._submissions.all():
            submission.number = 0
            self._submissions.fail(submission, OutcomeKind.LOST, reason)

    def _on_cluster_failed(self) -> None:
        if self._falls_back:
            self._say_once(f"the build continues without the Ray cluster: {self._cluster.error}")
        self._begin_waiting()

    # Ends

    def _kill(self, submission: Submission) -> None:
        if submission.number:
            self._cluster.cancel(submission.number, force=True)
            time.sleep(1.0)
        self._submissions.fail(submission, OutcomeKind.CANCELLED, "")

    def _say_once(self, message: str) -> None:
        with self._saying:
            if message in self._said:
                return
            self._said.add(message)
        self._say(message)
