"""A real cluster on this machine: a head and nodes, each with processes of its own."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.execution.ray.namespace import Namespace

PATIENCE_SECONDS = 180.0
_MARK = "MLCBUILD_TEST_NODE"
_PORT = 6399
_TRIES = 4
OBJECT_STORE_BYTES = 80_000_000


class Node:
    """One node. `store` is its folder for blobs, unless it `shares` the store of the build."""

    def __init__(
        self,
        cluster: RayCluster,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        inside: Callable[[Sequence[str]], list[str]] | None = None,
    ) -> None:
        self._inside = inside or cluster.namespace.inside
        self.name = name
        self.mark = f"{cluster.mark}-{name}"
        self.store = cluster.folder / "stores" / name
        self._cluster = cluster
        self._arguments = list(arguments)
        self._environment = {_MARK: self.mark, "MLCBUILD_NODE_STORE": str(self.store), **environment}

    def start(self) -> None:
        """Ray gives itself half a minute to start, which may not be enough on a loaded machine."""
        for _ in range(_TRIES):
            done = self._try_to_start()
            if done.returncode == 0:
                return
            self.kill()
        raise AssertionError(done.stdout + done.stderr)

    def _try_to_start(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._inside(
                [sys.executable, "-m", "ray.scripts.scripts", "start", *self._arguments, "--disable-usage-stats"]
            ),
            env={**self._cluster.environment, **self._environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def processes(self, named: str = "") -> list[int]:
        """The processes of the node whose command lines contain a text."""
        return [pid for pid in processes_marked(_MARK, self.mark) if named in command_line(pid)]

    def kill(self, named: str = "") -> int:
        """Kill all or some processes of the node. Returns how many."""
        pids = self.processes(named)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def is_running(self) -> bool:
        return bool(self.processes("raylet"))


class RayCluster:
    """Starts with a head, which runs no actions."""

    def __init__(
        self,
        folder: Path,
        namespace: Namespace,
        *,
        port: int = _PORT,
        host: str = "127.0.0.1",
        head_arguments: Sequence[str] = (),
        inside: Callable[[RayCluster], Callable[[Sequence[str]], list[str]]] | None = None,
        **environment: str,
    ) -> None:
        self.folder = folder
        self.namespace = namespace
        self.mark = secrets.token_hex(8)
        self.host = host
        self.address = f"{host}:{port}"
        self.token = folder / "token"
        folder.mkdir(parents=True, exist_ok=True)
        self.token.write_text(secrets.token_hex(32))
        self.token.chmod(0o600)
        self.temporary = Path("/tmp") / f"mlcray-{self.mark[:8]}"  # short: sockets lie below
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(folder / "cache-of-nodes"),
            "LC_ALL": "C.UTF-8",
            **imports(),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "2000",
            "RAY_health_check_failure_threshold": "5",
            **environment,
        }
        self._port = port
        self.nodes: dict[str, Node] = {}
        self.head = Node(
            self,
            "head",
            [
                "--head",
                f"--node-ip-address={host}",
                f"--port={port}",
                "--num-cpus=0",
                "--include-dashboard=false",
                f"--temp-dir={self.temporary}",
                f"--object-store-memory={OBJECT_STORE_BYTES}",
                *head_arguments,
            ],
            {},
            inside(self) if inside is not None else None,
        )
        self.head.start()

    def add(
        self,
        name: str,
        *,
        cpus: int = 1,
        gpus: int = 0,
        labels: Mapping[str, str] = {},
        memory_bytes: int = 0,
        environment: Mapping[str, str] = {},
        host: str = "",
        inside: Callable[[Sequence[str]], list[str]] | None = None,
    ) -> Node:
        """`inside` makes the command line that runs a command in the network of a node with an address of its own."""
        arguments = [
            f"--address={self.address}",
            f"--node-ip-address={host or self.host}",
            f"--num-cpus={cpus}",
            f"--num-gpus={gpus}",
            f"--object-store-memory={OBJECT_STORE_BYTES}",
        ]
        if labels:
            arguments.append("--labels=" + ",".join(f"{key}={value}" for key, value in labels.items()))
        if memory_bytes:
            arguments.append(f"--memory={memory_bytes}")
        node = Node(self, name, arguments, environment, inside)
        try:
            node.start()
        except BaseException:
            node.kill()
            raise
        self.nodes[name] = node
        return node

    def close(self) -> None:
        """Kill every process of every node."""
        for _ in range(3):
            for node in (*self.nodes.values(), self.head):
                node.kill()
            time.sleep(0.2)
        subprocess.run(["rm", "-rf", str(self.temporary)], check=False)

    def builder(self) -> dict[str, str]:
        """The variables of a build on it."""
        names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
        return {name: self.environment[name] for name in names} | {
            "MLCBUILD_EXECUTOR": "ray",
            "MLCBUILD_RAY_ADDRESS": self.address,
        }


def imports() -> dict[str, str]:
    """The import path of the tests themselves."""
    return {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


def processes_marked(variable: str, value: str) -> list[int]:
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
