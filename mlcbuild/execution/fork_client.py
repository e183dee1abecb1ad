"""The client of a fork server: starts the server on first use, launches processes in it, waits for their ends."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcbuild.execution import environment
from mlcbuild.execution.log import BoundedLog
from mlcbuild.execution.memory import MemoryWatch

PROGRAM = Path(__file__).with_name("fork_server.py")
_DRAIN_SECONDS = 1.0  # how long to read the log after the end, if a descendant still holds it open
_CLOSE_SECONDS = 10.0
_PIECE_BYTES = 1 << 16
_SHOWN_BYTES = 2000
_MFD_NOEXEC_SEAL = 8  # linux/memfd.h


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """How a process ended. `status` is that of wait(2); None if the server died or could not fork."""

    status: int | None
    result: bytes  # what it wrote to its channel, or why there is no process
    log: bytes
    peak_bytes: int  # the largest resident set of all its processes; what it shares with its server is included
    timed_out: bool
    out_of_memory: bool  # It used more than its limit.
    error: str  # why it could not be started; "" if it was


class ForkedProcess:
    """A process that a server has started. Call `wait` from one thread, `kill` from any.

    A stage gets its request on its `channel`.
    """

    def __init__(self, *, control: socket.socket, channel: socket.socket | None, log: int, request: bytes) -> None:
        self._control = control
        self._channel = channel
        self._log = log
        self._request = request
        self._lock = threading.Lock()
        self._open = True
        self._pid = 0  # 0: not forked yet
        self._watch = MemoryWatch(0)

    def kill(self) -> None:
        """Kill the process and its group. Does nothing after its end.

        If the server has not forked it yet (it may be importing), `wait` returns at once, and the process never runs.
        """
        with self._lock, contextlib.suppress(OSError):
            if self._open and self._pid:
                self._control.send(b"k")
            elif self._open:
                self._control.shutdown(socket.SHUT_RDWR)

    @property
    def resident_bytes(self) -> int:
        """What it and its descendants used when they were last measured."""
        return self._watch.resident_bytes

    def wait(self, timeout: float = 0.0, *, memory_bytes: int = 0) -> ProcessEnd:
        """Send the request, collect what the process writes, and return at its end.

        `timeout` is in seconds from the fork on, because a server may still have to start; 0: none. A process that
        uses more than `memory_bytes` is killed; 0: no limit.
        """
        if self._channel is not None:
            with contextlib.suppress(OSError):  # It was killed before it had read its request.
                self._channel.sendall(self._request)
                self._channel.shutdown(socket.SHUT_WR)
        try:
            return self._collect(timeout, memory_bytes)
        finally:
            with self._lock:
                self._open = False
                self._control.close()
            if self._channel is not None:
                self._channel.close()
            os.close(self._log)

    def _collect(self, timeout: float, memory_bytes: int) -> ProcessEnd:
        told, result, log = bytearray(), bytearray(), BoundedLog()
        timed_out = False
        watch = self._watch = MemoryWatch(memory_bytes)
        deadline: float | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            if self._channel is not None:
                selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._log, selectors.EVENT_READ)
            while selector.get_map():
                nearest = min(math.inf if deadline is None else deadline, watch.next_look)
                events = selector.select(None if math.isinf(nearest) else max(nearest - time.monotonic(), 0.0))
                if time.monotonic() >= watch.next_look and watch.look(self._pid):
                    self.kill()
                if not events and deadline is not None and time.monotonic() >= deadline:
                    if self._control not in selector.get_map():
                        break  # It has ended, and a descendant still holds its log.
                    timed_out, deadline = True, None
                    self.kill()
                for key, _ in events:
                    data = _read(key.fd)
                    if key.fileobj is self._control:
                        told += data
                        if data and not self._pid and (pid := _facts(told).get("pid")):
                            with self._lock:
                                self._pid = int(pid)
                            deadline = time.monotonic() + timeout if timeout > 0 else None
                    elif key.fileobj is self._channel:
                        result += data
                    else:
                        log.write(data)
                    if not data:
                        selector.unregister(key.fileobj)
                        if key.fileobj is self._control:
                            deadline = time.monotonic() + _DRAIN_SECONDS
                            watch.stop()
        facts = _facts(told)
        if "status" not in facts and "pid" in facts:
            # The server died. Its guardian kills what it ran, unless the guardian was killed too.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(facts["pid"]), signal.SIGKILL)
        return ProcessEnd(
            status=int(facts["status"]) if "status" in facts else None,
            result=json.dumps(facts["result"]).encode() if "result" in facts else bytes(result),
            log=log.bytes(),
            peak_bytes=max(watch.peak_bytes, int(facts.get("peak_bytes", 0))),
            timed_out=timed_out,
            out_of_memory=watch.is_over,
            error=str(facts.get("error", "")),
        )


def interpreter_command(settings: Mapping[str, object]) -> list[str]:
    """The command that starts a fork server."""
    # Not -I, which would ignore PYTHONHASHSEED too. -s and -P are its other parts.
    return [sys.executable, "-s", "-P", str(PROGRAM), json.dumps(settings)]


class ForkClient:
    """Uses a fork server that holds the modules in `preload`. The first `launch` starts it, also after it has died.

    `hide` names modules that nothing in it can import. `log` is the file for what the server itself prints.
    """

    def __init__(
        self, *, preload: Sequence[str], hide: Sequence[str] = (), log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        self.preload = tuple(preload)
        self._hide = tuple(hide)
        self._variables = dict(environment.of_server() if variables is None else variables)
        self._log = log
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._hello: dict[str, object] = {}

    def launch(self, request: Mapping[str, object]) -> ForkedProcess:
        """Start a process for a request (see `fork_server`). Raises OSError if the server cannot start."""
        text = json.dumps(request).encode()
        is_tool = "arguments" in request
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            control, their_control = socket.socketpair()
            ours.enter_context(control)
            theirs.enter_context(their_control)
            log, their_log = os.pipe2(os.O_CLOEXEC)
            ours.callback(os.close, log)
            theirs.callback(os.close, their_log)
            channel = None
            if is_tool:
                their_channel = _memory_file(text)
                theirs.callback(os.close, their_channel)
            else:
                channel, other = socket.socketpair()
                ours.enter_context(channel)
                their_channel = theirs.enter_context(other).fileno()
            with self._lock:
                self._ensure_running()
                assert self._socket is not None
                with contextlib.suppress(OSError):  # It died just now, which the control socket reports.
                    descriptors = [their_control.fileno(), their_channel, their_log]
                    socket.send_fds(self._socket, [b"t" if is_tool else b"f"], descriptors)
            ours.pop_all()
        return ForkedProcess(control=control, channel=channel, log=log, request=text)

    def start_error(self) -> str:
        """Why the server could not start; "" if it did."""
        with self._lock:
            self._read_hello()
            if "ready" in self._hello or self._process is None:
                return ""
            if "error" in self._hello:
                return str(self._hello["error"])
            code = self._process.wait(_CLOSE_SECONDS)
            printed = self._log.read_bytes()[-_SHOWN_BYTES:].decode(errors="replace").strip()
            return f"{sys.executable} ended with exit code {code} while importing {', '.join(self.preload)}\n{printed}"

    def hello(self) -> Mapping[str, object]:
        """The server's first message: its pid as `ready`, its number of `threads`, and our `modules` that it holds."""
        with self._lock:
            self._ensure_running()
            self._read_hello()
            return dict(self._hello)

    def close(self) -> None:
        """End the server and everything that it runs. The next `launch` starts it again."""
        with self._lock:
            self._forget()

    def _ensure_running(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._forget()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        settings = {"socket": theirs.fileno(), "preload": self.preload, "hide": self._hide}
        try:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    interpreter_command(settings),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._variables,
                    cwd="/",
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket = ours

    def _read_hello(self) -> None:
        for _ in range(2):
            if self._socket is None or self._hello:
                return
            # A server that ended before it read all requests resets the connection once; its message comes after that.
            with contextlib.suppress(ConnectionResetError):
                if line := self._socket.recv(_PIECE_BYTES):
                    self._hello = json.loads(line)

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                self._read_hello()
            self._socket.close()
        if self._process is not None:
            if not self._hello:  # It is still importing, so it has forked nothing.
                self._process.kill()
            try:
                self._process.wait(_CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._socket = self._process = None
        self._hello = {}


def _memory_file(content: bytes) -> int:
    """The descriptor of a file without a name that nobody can execute: some machines allow no other."""
    try:
        descriptor = os.memfd_create("request", os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:  # The flag is of Linux 6.3.
            raise
        descriptor = os.memfd_create("request")
    os.write(descriptor, content)
    return descriptor


def _facts(told: bytes | bytearray) -> dict[str, Any]:
    """What the server has reported about a process so far, in complete lines."""
    facts: dict[str, Any] = {}
    for line in told.splitlines(keepends=True):
        if line.endswith(b"\n"):
            facts |= json.loads(line)
    return facts


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _PIECE_BYTES)
    except ConnectionResetError:
        return b""
