"""A process that imports slow libraries once, and forks a child for each action. It is run as a script, by path.

It is started by exec and holds nothing of ours but this file and the few files that it loads from beside it: our own
code is imported in the child, so that an edited module is never stale. It has a single thread, so that a fork is safe.
Its only argument is JSON::

    {"socket": 3, "preload": ["numpy", "tvm"], "hide": ["torch"]}

`socket` is an inherited SOCK_SEQPACKET socket. The server sends `ready` on it once its imports are done; or, if one
failed, `error`, and ends. Then it takes messages of one byte, `f` for a stage and `t` for a tool, with three file
descriptors:

- *control*, which the server keeps. It writes `{"pid": …}` to it, and `{"status": …, "peak_bytes": …}` when the child
  has ended (`status` is that of wait(2)). Any byte from the client, or the end of the client, kills the child's process
  group;
- *channel*. For a stage the child gets it, reads its request from it as JSON up to the end of the stream, and writes
  the result to it. For a tool it is a file with the request; if the tool cannot start, *control* gets the reason as
  `result`;
- *log*, the child's standard output and standard error.

When the socket closes, the server kills everything that runs, and ends.

A server that outlives its clients gets `listen` instead, an inherited socket that clients connect to::

    {"listen": 3, "path": "….sock", "lock": "….lock", "idle_seconds": 900, "preload": …, "hide": …}

It greets each client with `ready`; or with `stale`, if what it has loaded has changed on disk, and then it accepts no
more clients. It also stops to accept when a client sends `q`, or after `idle_seconds` without a client, while it holds
the lock under which clients connect. It ends with its last client.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import importlib.util
import json
import os
import resource
import select
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from mlcbuild.execution.listener import Listener

_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)
_ALWAYS = ("dataclasses", "enum", "inspect", "typing")  # what nearly every module of ours imports
_NOT_STARTED = 127 << 8  # the code that shells use, in the form of wait(2)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


class ForkServer:
    """The loop of the server. Its state is one control socket for each running child."""

    def __init__(
        self,
        *,
        source_loader: Any,
        sandbox: Any,
        read_audit: Any,
        spawning: Any,
        stage_child: Any,
        guardian: Any,
        requests: Iterable[socket.socket] = (),
    ) -> None:
        self._clients = set(requests)
        self._listener: Listener | None = None
        self._source_loader = source_loader
        self._sandbox = sandbox
        self._read_audit = read_audit
        self._spawning = spawning
        self._stage_child = stage_child
        self._guardian = guardian
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._pid = os.getpid()
        self._controls: dict[int, socket.socket] = {}
        self._marks: dict[int, int] = {}  # by the child's pid
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._reap()  # what ended before the signal was handled
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        for client in self._clients:
            self._selector.register(client, selectors.EVENT_READ)
        if self._listener:
            self._selector.register(self._listener.socket, selectors.EVENT_READ)
        while self._clients or self._listener:
            is_idle = self._listener is not None and not self._clients
            events = self._selector.select(self._listener.idle_seconds if self._listener and is_idle else None)
            if not events and self._listener and self._listener.closed_unless_somebody_connects():
                self._stop_listening()
            for key, _ in events:
                if key.fileobj == self._wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 1 << 16)
                    self._reap()
                elif self._listener and key.fileobj is self._listener.socket:
                    self._greet(self._listener)
                elif key.fileobj in self._clients:
                    self._hear(key.fileobj)
                elif key.data in self._controls:  # The client wants it killed, or has ended.
                    self._selector.unregister(key.fileobj)
                    _kill_group(key.data)

    def open(self, listener: Listener) -> None:
        self._listener = listener

    def _greet(self, listener: Listener) -> None:
        client = listener.accept()
        if client is None:
            return
        if listener.is_stale():
            _tell(client, {"stale": self._pid})
            client.close()
            listener.close()
            self._stop_listening()
            return
        self._clients.add(client)
        self._selector.register(client, selectors.EVENT_READ)
        _tell(client, {**listener.greeting, "running": len(self._controls), "clients": len(self._clients)})

    def _stop_listening(self) -> None:
        if self._listener:
            self._selector.unregister(self._listener.socket)
            self._listener.socket.close()
            self._listener = None

    def _hear(self, client: socket.socket) -> None:
        """Take a request from a client, or notice its end."""
        try:
            message, descriptors, _, _ = socket.recv_fds(client, 1, 3, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:  # It died before it had read everything.
            message, descriptors = b"", []
        if message == b"q" and self._listener:
            self._listener.close()
            self._stop_listening()
        if not message:
            self._selector.unregister(client)
            self._clients.discard(client)
            client.close()
        if len(descriptors) != 3:
            for descriptor in descriptors:
                os.close(descriptor)
            return
        control, (channel, log) = socket.socket(fileno=descriptors[0]), descriptors[1:]
        try:
            if not select.select([control], [], [], 0)[0]:  # Otherwise it was cancelled before it began.
                if not self._guardian.pid:
                    self._guardian.start()
                self._guardian.marks.lower()
                pid = self._spawn(channel, log) if message == b"t" else self._fork(control, channel, log)
                self._controls[pid] = control
                self._marks[pid] = self._guardian.marks.current
                self._selector.register(control, selectors.EVENT_READ, pid)
                _tell(control, {"pid": pid})
                return
        except self._spawning.StartError as reason:
            _tell(control, {"status": _NOT_STARTED, "result": reason.answer})
        except OSError as error:
            _tell(control, {"error": error.strerror})
        finally:
            os.close(channel)
            os.close(log)
        control.close()

    def _spawn(self, file: int, log: int) -> int:
        request = json.loads(os.pread(file, os.fstat(file).st_size, 0))
        pid = self._spawning.spawn(request, standard_input=self._nothing, log=log, confine=self._sandbox.confine)
        return int(pid)

    def _fork(self, control: socket.socket, channel: int, log: int) -> int:
        pid = os.fork()
        if pid == 0:
            self._become_child(control, socket.socket(fileno=channel), log)
        return pid

    def _reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if ended is None:
                break
            pid = ended.si_pid
            control = self._controls.pop(pid, None)
            self._marks.pop(pid, None)
            if control is not None:
                # The child is still a zombie, so no other group can have its number yet.
                _kill_group(pid)
            _, status, usage = os.wait4(pid, 0)
            if pid == self._guardian.pid:  # It was killed, and is replaced.
                self._guardian.start()
                continue
            self._kill_strays()
            if control is not None:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(control)
                _tell(control, {"status": status, "peak_bytes": usage.ru_maxrss * 1024})
                control.close()

    def _kill_strays(self) -> None:
        """Kill processes that left their process group, lost their parent, and belong to no running action.

        They became our children, because this process is a subreaper. Those without a mark are killed when no action
        runs.
        """
        marks = set(self._marks.values())
        try:
            children = Path(f"/proc/self/task/{self._pid}/children").read_text().split()
        except OSError:
            return
        for pid in map(int, children):
            if pid == self._guardian.pid or pid in self._controls:
                continue
            if not (marks and self._guardian.marks.of(pid) in (*marks, 0)):
                with contextlib.suppress(OSError):  # It belongs to another user.
                    os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill everything that runs, and wait until it has ended."""
        self._marks.clear()  # Whatever any action has left running is a stray now.
        for pid in self._controls:
            _kill_group(pid)
        self._kill_strays()
        self._guardian.dismiss()
        while True:
            self._kill_strays()
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def _close_listener_of_child(self) -> None:
        if self._listener:
            self._listener.socket.close()

    def _become_child(self, control: socket.socket, channel: socket.socket, log: int) -> NoReturn:
        """In the child: drop what belongs to the server, do what the request says, and never return."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0)
            self._guardian.leave()
            for source, standard in ((self._nothing, 0), (log, 1), (log, 2)):
                os.dup2(source, standard)
            self._selector.close()
            for closing in (control, *self._clients, *self._controls.values()):
                closing.close()
            self._close_listener_of_child()
            for descriptor in (self._nothing, log, self._wake_read, self._wake_write):
                os.close(descriptor)
            os._exit(
                self._stage_child.run(
                    channel, source_loader=self._source_loader, sandbox=self._sandbox, read_audit=self._read_audit
                )
            )
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(self._stage_child.FAILED)


def _kill_group(pid: int) -> None:
    """Kill a child's process group; or the child alone, if it does not lead a group yet."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _tell(stream: socket.socket, message: dict[str, Any]) -> None:
    """Send a line of JSON, unless the other side has closed the connection."""
    with contextlib.suppress(OSError):
        stream.sendall(json.dumps(message).encode() + b"\n")


def _keep_freed_memory() -> None:
    """Have the C library use freed memory again. Unless told so, it returns what is larger than 128 KiB to the system,
    and children that compute with NumPy spend much of their time on getting it again."""
    with contextlib.suppress(AttributeError):  # of another C library than glibc
        _LIBC.mallopt(_M_MMAP_THRESHOLD, 4 << 20)
        _LIBC.mallopt(_M_TRIM_THRESHOLD, 64 << 20)


def _import_if_installed(name: str) -> None:
    """A library that is not installed is left out: the stage may be able to run without it."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise


def _load_beside(name: str) -> Any:
    """Load a file beside this one, without the package that it is in."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    settings = json.loads(sys.argv[1])
    listens = "listen" in settings
    if listens and os.fork():
        os._exit(0)  # The server must be no child of its client: some programs kill their children when they end.
    for name in _ALWAYS:
        importlib.import_module(name)
    entrance = socket.socket(fileno=settings["listen" if listens else "socket"])
    entrance.set_inheritable(False)
    if listens:
        os.chdir("/")
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _keep_freed_memory()
    faulthandler.enable()
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    guardian = _load_beside("guardian").Guardian()
    source_loader, sandbox, read_audit, spawning, stage_child = map(
        _load_beside, ("source_loader", "sandbox", "read_audit", "spawning", "stage_child")
    )
    sys.meta_path.insert(0, source_loader.HidingFinder(settings["hide"]))
    try:
        for name in settings["preload"]:
            _import_if_installed(name)
    except Exception as error:
        traceback.print_exc()
        failure = {"error": f"{type(error).__name__}: {error}"}
        if listens:
            os.unlink(settings["path"])  # noqa: PTH108
            while select.select([entrance], [], [], 0)[0]:
                _tell(entrance.accept()[0], failure)
        else:
            _tell(entrance, failure)
        return 1
    threads = len(list(Path("/proc/self/task").iterdir()))
    modules = [name for name in sys.modules if name.partition(".")[0] == "mlcbuild"]
    greeting = {"ready": os.getpid(), "threads": threads, "modules": modules}
    server = ForkServer(
        source_loader=source_loader,
        sandbox=sandbox,
        read_audit=read_audit,
        spawning=spawning,
        stage_child=stage_child,
        guardian=guardian,
        requests=() if listens else (entrance,),
    )
    if listens:
        greeting["preload"] = settings["preload"]
        server.open(
            _load_beside("listener").Listener(
                entrance,
                path=settings["path"],
                lock=settings["lock"],
                idle_seconds=settings["idle_seconds"],
                greeting=greeting,
            )
        )
    else:
        _tell(entrance, greeting)
    gc.collect()
    gc.freeze()
    try:
        server.serve()
    finally:
        server.end()
    return 0


if __name__ == "__main__":
    code = 1
    try:
        code = main()
    except Exception:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)  # It skips the teardown of the libraries, for which a build would have to wait.
