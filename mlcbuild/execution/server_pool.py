"""Fork servers that outlive the build that started them. Builds find them by name in a directory of the user.

A server's name is derived from everything that an action could notice about it: the interpreter, the modules that it
holds, its variables, our files that run in it, and the limits, control groups and namespaces that its children inherit.
The server itself checks whether the libraries that it holds have changed on disk, whenever a client connects.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import resource
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.execution.fork_client import PROGRAM, ForkClient, interpreter_command

IDLE_SECONDS = 15 * 60.0
_MOST_PATH_BYTES = 107  # of a socket: sockaddr_un
_NAME_BYTES = 24
_STARTED_BESIDE = (
    "guardian.py",
    "listener.py",
    "read_audit.py",
    "sandbox.py",
    "source_loader.py",
    "spawning.py",
    "stage_child.py",
)
_NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "user")
_ANSWER_SECONDS = 30.0
_ASK_SECONDS = 0.5


def pool_directory(environment: Mapping[str, str], fallback: Path) -> Path:
    """The directory for the sockets: `$XDG_RUNTIME_DIR/mlcbuild`, or `fallback`; if both are too long, a short path."""
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    places = [Path(runtime, "mlcbuild")] if runtime.startswith("/") and Path(runtime).is_dir() else []
    places.append(fallback)
    for place in places:
        if len(os.fsencode(place)) + _NAME_BYTES + len("/.sock") <= _MOST_PATH_BYTES:
            return place
    return Path(tempfile.gettempdir(), f"mlcbuild-{os.geteuid()}")


class PooledForkClient(ForkClient):
    """Uses a fork server of the pool in `directory`. If there is none yet, it starts one and leaves it there.

    The first launch raises LocalEnvironmentError if other users could reach the directory.
    """

    def __init__(
        self,
        *,
        preload: Sequence[str],
        hide: Sequence[str],
        variables: Mapping[str, str],
        directory: Path,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._directory = directory
        self._idle_seconds = idle_seconds
        self._name = _name(preload, hide, variables)
        super().__init__(preload=preload, hide=hide, log=directory / f"{self._name}.log", variables=variables)

    def start_error(self) -> str:
        with self._lock:
            self._read_hello()
            return str(self._hello.get("error", ""))

    def _ensure_running(self) -> None:
        if self._socket is not None and self._is_open(self._socket):
            return
        self._forget()
        _prepare(self._directory)
        with _locked(self._directory / f"{self._name}.lock"):
            path = self._directory / f"{self._name}.sock"
            connection = _connect(path)
            if connection is not None:
                self._hello = _greeting(connection, _ANSWER_SECONDS)
                if "ready" in self._hello:
                    self._socket = connection
                    return
                connection.close()
                self._hello = {}
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            self._start(path)
            self._socket = _connect(path)

    def _is_open(self, connection: socket.socket) -> bool:
        connection.setblocking(False)
        try:
            self._read_hello()  # It comes first, so it would hide the end.
            return connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            connection.setblocking(True)

    def _start(self, path: Path) -> None:
        """Start a server with a socket that clients can already connect to."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(path))
            listener.listen(64)
            listener.set_inheritable(True)
            settings = {
                "listen": listener.fileno(),
                "path": str(path),
                "lock": str(path.with_suffix(".lock")),
                "idle_seconds": self._idle_seconds,
                "preload": self.preload,
                "hide": self._hide,
            }
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                # Not subprocess, which would wait for a process that stays. What starts here forks and ends.
                command = interpreter_command(settings)
                started = os.posix_spawn(
                    command[0],
                    command,
                    self._variables,
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_DUP2, log, 1),
                        (os.POSIX_SPAWN_DUP2, log, 2),
                    ],
                    setsid=True,
                )
            finally:
                os.close(log)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(started, 0)

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._hello = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledServer:
    """A server of the pool. `pid` is 0 if it did not answer, because it is still importing."""

    name: str
    pid: int = 0
    preload: tuple[str, ...] = ()
    running: int = 0  # actions


def pooled_servers(directory: Path) -> list[PooledServer]:
    """The servers in a pool. Sockets of dead servers are skipped."""
    found = []
    for path in sorted(directory.glob("*.sock")):
        connection = _connect(path)
        if connection is None:
            continue
        with connection:
            hello = _greeting(connection, _ASK_SECONDS)
        preload = hello.get("preload")
        if "stale" not in hello:
            found.append(
                PooledServer(
                    name=path.stem,
                    pid=_integer(hello.get("ready")),
                    preload=tuple(map(str, preload)) if isinstance(preload, list) else (),
                    running=_integer(hello.get("running")),
                )
            )
    return found


def shut_down(directory: Path) -> int:
    """Tell every server to end after its running actions. Returns how many there were. Removes sockets of dead ones."""
    count = 0
    for path in sorted(directory.glob("*.sock")):
        with _locked(path.with_suffix(".lock")):
            connection = _connect(path)
            if connection is None:
                path.unlink(missing_ok=True)
                continue
            with connection, contextlib.suppress(OSError):
                _greeting(connection, _ANSWER_SECONDS)
                connection.send(b"q")
                count += 1
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)
    return count


def _name(preload: Sequence[str], hide: Sequence[str], variables: Mapping[str, str]) -> str:
    executable = os.stat(sys.executable)  # noqa: PTH116
    limits = [resource.getrlimit(getattr(resource, name)) for name in sorted(dir(resource)) if name[:7] == "RLIMIT_"]
    groups = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    parts: list[object] = [
        [sys.executable, sys.prefix, sys.version, executable.st_ino, executable.st_mtime_ns],
        [list(preload), list(hide), sorted(variables.items())],
        # By its path too: an action may read the files of the installation that it belongs to, and of no other.
        str(PROGRAM),
        [hashlib.sha256(path.read_bytes()).hexdigest() for path in (PROGRAM, *map(PROGRAM.with_name, _STARTED_BESIDE))],
        [os.getresuid(), os.getresgid(), sorted(os.getgroups())],
        [limits, groups, sorted(os.sched_getaffinity(0)), os.nice(0)],
        [os.readlink(f"/proc/self/ns/{kind}") for kind in _NAMESPACES],  # noqa: PTH115
        os.readlink("/proc/self/root"),  # noqa: PTH115
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_NAME_BYTES]


def _prepare(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise LocalEnvironmentError(
            f"warm workers cannot be kept in {directory}, which is not a directory of yours",
            advice=("set XDG_RUNTIME_DIR to one, or build with --workers=cold",),
        )
    if status.st_mode & 0o077:
        directory.chmod(0o700)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Held while a client connects and while a server closes, so that no server closes while a client connects."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _connect(path: Path) -> socket.socket | None:
    """None if nobody listens there, or it is a process of another user."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(str(path))
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except OSError:
        connection.close()
        return None
    if user != os.geteuid():
        connection.close()
        return None
    return connection


def _greeting(connection: socket.socket, seconds: float) -> dict[str, object]:
    connection.settimeout(seconds)
    try:
        line = connection.recv(1 << 16)
    except OSError:
        return {}
    finally:
        connection.settimeout(None)
    return json.loads(line) if line else {}


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0
