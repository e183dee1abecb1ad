"""A process that imports slow libraries once and forks a child for each action. Run as a script, by path.

Started by exec, with nothing of ours but this file and the few that it loads from beside it, and single-threaded, so
that a fork is safe and an edited module is never stale: our own code is imported in the child. The one argument is
JSON::

    {"socket": 3, "preload": ["numpy", "tvm"], "hide": ["torch"]}

`socket` is an inherited SOCK_SEQPACKET socket. On it the server says `ready` once its imports are done (or what
failed, and ends), then takes messages of one byte, `f` for a stage and `t` for a tool, that carry three file
descriptors:

- *control*, kept by the server: it writes `{"pid": …}`, and `{"status": …, "peak_bytes": …}` when the child has
  ended (`status` as of wait(2)); any byte from the client, or its going away, kills the child's process group;
- *channel*, handed to a stage's child, which reads its request from it as JSON up to the end of the stream, and writes
  the result there; for a tool, a file with the request: what hinders its start comes as `result` on *control*;
- *log*, the child's standard output and standard error.

When the socket closes, everything that runs is killed and the server ends.

A server that outlives its clients is given `listen` instead, an inherited socket that they connect to::

    {"listen": 3, "path": "….sock", "lock": "….lock", "idle_seconds": 900, "preload": …, "hide": …}

It greets each client with `ready`, or with `stale` where what it has loaded is no more what lies on the disk; then
it listens no longer. So it does when a client sends `q`, or after `idle_seconds` without one, holding the lock
under which clients connect; it ends with the last of them.
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
import tempfile
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from mlcbuild.execution.listener import Listener

_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)
_ALWAYS = ("dataclasses", "enum", "inspect", "typing")  # what nearly every module of ours imports
_FALLTHROUGH_EXIT = 70  # EX_SOFTWARE: the child's own plumbing failed
_NOT_STARTED = 127 << 8  # as a shell says it, in the form of wait(2)


class ForkServer:
    """The loop. Its state is one control socket for each child that runs."""

    def __init__(
        self,
        *,
        source_loader: Any,
        sandbox: Any,
        spawning: Any,
        guardian: Any,
        requests: Iterable[socket.socket] = (),
    ) -> None:
        self._clients = set(requests)
        self._listener: Listener | None = None
        self._source_loader = source_loader
        self._sandbox = sandbox
        self._spawning = spawning
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
        self._reap()  # what ended before anybody listened
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
                elif key.data in self._controls:  # a kill, or the client went away
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
        """A request of a client, or its going away."""
        try:
            message, descriptors, _, _ = socket.recv_fds(client, 1, 3, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:  # it died before it had read all we said
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
            if not select.select([control], [], [], 0)[0]:  # else it was cancelled before it began
                if not self._guardian.pid:
                    self._guardian.start()
                self._guardian.marks.sink()
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
                # The child is still a zombie, so its number cannot have become another group's.
                _kill_group(pid)
            _, status, usage = os.wait4(pid, 0)
            if pid == self._guardian.pid:  # who is killed is replaced
                self._guardian.start()
                continue
            self._kill_strays()
            if control is not None:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(control)
                _tell(control, {"status": status, "peak_bytes": usage.ru_maxrss * 1024})
                control.close()

    def _kill_strays(self) -> None:
        """Kill what left its process group, lost its parent, and belongs to no action that runs.

        It became ours, as we are a subreaper. Those whose mark says nothing go when nothing runs.
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
                with contextlib.suppress(OSError):  # another user's
                    os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill all that runs, and wait until it has gone."""
        self._marks.clear()  # what any action has left running is a stray now
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
        """In the child: leave the server behind, become what the request says, and never return."""
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
            os._exit(_run(channel, self._source_loader, self._sandbox))
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(_FALLTHROUGH_EXIT)


def _run(channel: socket.socket, source_loader: Any, sandbox: Any) -> int:
    """Read a stage's request and carry it out; the exit status."""
    pieces = []
    while piece := channel.recv(1 << 16):
        pieces.append(piece)
    request = json.loads(b"".join(pieces))
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    policy = request.get("sandbox")
    if policy:
        try:
            sandbox.confine(policy)
        except OSError as error:
            _tell(channel, {"unconfined": str(error)})
            return _FALLTHROUGH_EXIT
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    source_loader.install(
        package_root=request["package_root"],
        directories=request["module_paths"],
        names=request["module_names"],
        cache=request["bytecode"],
    )
    witness = sandbox.Witness(policy) if policy else None
    if witness:
        witness.watch()
    stage_call = importlib.import_module("mlcbuild.execution.stage_call")
    plumbing = len(source_loader.FOUND)
    result = stage_call.call(request["call"])
    sys.stdout.flush()
    sys.stderr.flush()
    seen = {"undeclared": witness.undeclared, "network": witness.asked_for_network} if witness else {}
    _tell(channel, {**result, **seen, "modules": source_loader.FOUND[plumbing:]})
    return 0


def _kill_group(pid: int) -> None:
    """Kill a child's group, or the child alone where it has not yet become a leader."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _tell(stream: socket.socket, message: dict[str, Any]) -> None:
    """Send a line of JSON; whoever went away is not told."""
    with contextlib.suppress(OSError):
        stream.sendall(json.dumps(message).encode() + b"\n")


def _import_if_installed(name: str) -> None:
    """What is not installed is left to the stage, which may do without it."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise


def _load_beside(name: str) -> Any:
    """A file of ours beside this one, without the package that it is in."""
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
        os._exit(0)  # It is nobody's child: some programs kill their children when they end.
    for name in _ALWAYS:
        importlib.import_module(name)
    entrance = socket.socket(fileno=settings["listen" if listens else "socket"])
    entrance.set_inheritable(False)
    if listens:
        os.chdir("/")
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    faulthandler.enable()
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    guardian = _load_beside("guardian").Guardian()
    source_loader, sandbox, spawning = map(_load_beside, ("source_loader", "sandbox", "spawning"))
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
        spawning=spawning,
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
    os._exit(code)  # without the teardown of the libraries, for which a build would wait
