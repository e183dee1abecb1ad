"""What an action costs on a Ray cluster beyond its work, against a bare Ray task: `python -m benchmarks.ray_overhead`.

It compares, in turn, with the same number in flight, on clusters of this machine with the same CPUs: Ray tasks that do
nothing; Ray tasks that run /bin/touch by `subprocess.run` in a new directory and return the file's bytes; and actions
that run /bin/touch, whose inputs are laid out, which are forked, and whose outputs are stored. Then 10,000 of each.

Ray listens on all addresses, so run it in a separate network namespace:
`unshare --net sh -c 'ip link set lo up && exec python …'`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.engine.action import Action, ExecutionRequirements, ToolCall
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, OutcomeKind
from mlcbuild.execution.ray.environment_fingerprint import this_environment
from mlcbuild.execution.ray.executor import RayExecutor
from mlcbuild.execution.ray.settings import RaySettings
from mlcbuild.toolchains.table import Toolchains

_OBJECT_STORE_BYTES = 128 << 20


class Flights:
    """Starts `count` of something, `in_flight` at once, and waits for the last."""

    def __init__(self, in_flight: int) -> None:
        self._free = threading.Semaphore(in_flight)
        self._left = threading.Semaphore(0)

    def ended(self, *_: object) -> None:
        self._left.release()
        self._free.release()

    def milliseconds(self, count: int, start: Callable[[int], None]) -> float:
        """Of wall-clock time, for each."""
        began = time.perf_counter()
        for number in range(count):
            self._free.acquire()
            start(number)
        for _ in range(count):
            self._left.acquire()
        return 1000 * (time.perf_counter() - began) / count


class BareTasks:
    """Ray by itself, in this process."""

    def __init__(self, cpus: int, in_flight: int) -> None:
        os.environ["RAY_AUTH_MODE"] = "disabled"
        import ray

        ray.init(
            num_cpus=cpus,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            _node_ip_address="127.0.0.1",
        )
        self._in_flight = in_flight
        self._nothing = ray.remote(max_retries=0)(_nothing)
        self._touch = ray.remote(max_retries=0)(_touch)

    def nothing(self, count: int) -> float:
        return self._run(self._nothing, count)

    def touch(self, count: int) -> float:
        return self._run(self._touch, count)

    def _run(self, function: Any, count: int) -> float:
        flights = Flights(self._in_flight)
        payload = b"x" * 1000

        def start(_: int) -> None:
            function.remote(payload).future().add_done_callback(flights.ended)

        return flights.milliseconds(count, start)


def _nothing(payload: bytes) -> bytes:
    return payload


def _touch(payload: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["/bin/touch", "out.txt"], cwd=folder, check=True)
        return Path(folder, "out.txt").read_bytes() + payload


_TOUCH = Action(
    identifier="touch",
    mnemonic="Touch",
    owner="//:touch",
    inputs=(),
    outputs=("out.txt",),
    command=ToolCall(arguments=("/bin/touch", "out.txt")),
)


class Actions:
    """Actions on a cluster that is started here."""

    def __init__(self, folder: Path, cpus: int, in_flight: int, *, sandbox: bool) -> None:
        self._in_flight = in_flight
        self._on_end: Callable[[ExecutionOutcome], None] = lambda _: None
        self._executor = RayExecutor(
            DiskStore(folder / "cache", DigestFunction.BLAKE3),
            settings=RaySettings(jobs=cpus, sandbox=sandbox),
            slots=in_flight,
            toolchains=(),
            environment=lambda: this_environment((), Toolchains()),
        )
        self._executor.start(lambda outcome: self._on_end(outcome))
        self._executor.unmet_requirement(_TOUCH)  # begins to connect

    def touch(self, count: int) -> float:
        flights = Flights(self._in_flight)

        def end(outcome: ExecutionOutcome) -> None:
            assert outcome.kind is OutcomeKind.SUCCEEDED, outcome
            flights.ended()

        def start(number: int) -> None:
            self._executor.submit(
                ExecutionRequest(
                    identifier=f"//:touch-{number}",
                    mnemonic="Touch",
                    command=ToolCall(arguments=("/bin/touch", "out.txt")),
                    inputs=(),
                    outputs=("out.txt",),
                    environment=(),
                    requirements=ExecutionRequirements(),
                )
            )

        self._on_end = end
        return flights.milliseconds(count, start)

    def close(self) -> None:
        self._executor.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=500, help="in a round")
    parser.add_argument("--many", type=int, default=10_000, help="at the end; 0: not at all")
    parser.add_argument("--sandbox", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ray-overhead-") as folder:
        actions = Actions(Path(folder), options.cpus, options.in_flight, sandbox=options.sandbox)
        bare = BareTasks(options.cpus, options.in_flight)
        measured = {"task: nothing": bare.nothing, "task: touch": bare.touch, "action: touch": actions.touch}
        for run in measured.values():
            run(4 * options.in_flight)  # starts workers and servers
        figures: dict[str, list[float]] = {name: [] for name in measured}
        for _ in range(options.rounds):
            for name, run in measured.items():
                figures[name].append(run(options.count))
        print(
            f"{options.count} at a time, {options.in_flight} in flight, {options.cpus} CPUs: ms each, median (spread)"
        )
        for name, values in figures.items():
            print(f"  {name:16} {statistics.median(values):6.2f}  ({min(values):.2f}-{max(values):.2f})")
        ratios = [ours / theirs for ours, theirs in zip(figures["action: touch"], figures["task: touch"], strict=True)]
        print(f"  action / task    {statistics.median(ratios):6.2f}  ({min(ratios):.2f}-{max(ratios):.2f})")
        if options.many:
            for name, run in measured.items():
                print(f"  {options.many} of {name:16} {run(options.many):6.2f} ms each", flush=True)
        actions.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
