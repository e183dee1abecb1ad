"""Finds an action's processes from outside, and the node that they run on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.end_to_end.world import sleeping
from tests.execution.ray.cluster_world import Node, RayCluster, command_line, wait_until


def wait_for(command: str, build: subprocess.Popen[str]) -> int:
    """Wait until an action of a build runs it. If the build ends before, the test fails with its output."""
    try:
        wait_until(lambda: sleeping(command) or build.poll() is not None)
        return sleeping(command)[0]
    except (AssertionError, IndexError) as error:
        build.send_signal(signal.SIGINT)
        code, said = ended(build)
        raise AssertionError(f"{command} does not run; the build ended with {code}:\n{said}") from error


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return


def worker_of(cluster: RayCluster, pid: int) -> int:
    """The Ray worker that runs an action. The action is not a child of it."""
    return node_of(cluster, pid).processes("ray::serve")[0]


def node_of(cluster: RayCluster, pid: int) -> Node:
    """The node whose fork server is above a process of an action."""
    lines = [command_line(above) for above in ancestors(pid)]
    return next(node for node in cluster.nodes.values() if any(str(node.store) in line for line in lines))


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_gone(pid: int) -> bool:
    return not command_line(pid)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code and the output of a running build."""
    out, err = process.communicate(timeout=300)
    return process.returncode, out + err
