"""Starts the process that talks to Ray, and exchanges messages with it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlcbuild.execution.machine_resources import this_machine
from mlcbuild.execution.ray.frames import Receiver, send
from mlcbuild.execution.ray.settings import RaySettings
from mlcbuild.execution.scratch import Scratch

_END_SECONDS = 20.0
_SHOWN_BYTES = 2000
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Without it Ray prints a warning that asks for it.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",  # how long Ray waits for a head before it ends the process
}
_TOKEN = "token"


class BridgeClient:
    """One such process. A thread of this client calls `on_frame` with its messages and `on_end` with the reason for its
    end.
    """

    def __init__(
        self,
        settings: RaySettings,
        *,
        on_frame: Callable[[Mapping[str, Any], bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._on_frame = on_frame
        self._on_end = on_end
        self._sending = threading.Lock()
        self._closing = False
        self._closed = False
        # Ray's sockets lie in this folder, and the path of a socket has at most 107 bytes.
        self._scratch = Scratch(Path(tempfile.gettempdir()) / f"mlcbuild-ray-{os.getuid()}")
        self._log = self._scratch.directory / "bridge.log"
        ours, theirs = socket.socketpair()
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-s", "-P", "-m", "mlcbuild.execution.ray.bridge", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._variables(),
                    cwd="/",
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            self._scratch.close()
            raise
        finally:
            theirs.close()
        self._connection = ours
        self._reader = threading.Thread(target=self._read, name="ray", daemon=True)
        self._reader.start()
        self._send(self._greeting())

    def call(self, number: int, options: Mapping[str, Any], payload: bytes) -> None:
        """If the process has ended, `on_end` says so, not this."""
        self._send({"do": "call", "number": number, "options": dict(options)}, payload)

    def cancel(self, number: int, *, force: bool) -> None:
        self._send({"do": "cancel", "number": number, "force": force})

    def close(self) -> None:
        """End the process, and the cluster that it started. A second call does nothing."""
        with self._sending:
            if self._closed:
                return
            self._closed = True
        self._closing = True
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._reader is not threading.current_thread():
            self._reader.join()
        self._connection.close()
        self._scratch.close()

    def _variables(self) -> dict[str, str]:
        variables = {**os.environ, **_QUIET}
        if self._settings.address:
            variables.setdefault("RAY_AUTH_MODE", _TOKEN)
            return variables
        token = self._scratch.directory / _TOKEN
        descriptor = os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(secrets.token_hex(32))
        for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN"):
            variables.pop(name, None)
        return {**variables, "RAY_AUTH_MODE": _TOKEN, "RAY_AUTH_TOKEN_PATH": str(token)}

    def _greeting(self) -> dict[str, Any]:
        if self._settings.address:
            return {"address": self._settings.address}
        machine = this_machine()
        return {
            "address": "",
            "jobs": self._settings.jobs,
            "gpus": int(machine.gpus),
            "labels": dict(machine.labels),
            "temporary": str(self._scratch.directory / "r"),
        }

    def _send(self, head: Mapping[str, Any], payload: bytes = b"") -> None:
        with self._sending, contextlib.suppress(OSError):
            send(self._connection, head, payload)

    def _read(self) -> None:
        receiver = Receiver(self._connection)
        while (frame := receiver.receive()) is not None:
            self._on_frame(*frame)
        receiver.close()
        if not self._closing:
            self._on_end(self._last_words())

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        with contextlib.suppress(OSError):
            printed = self._log.read_bytes()[-_SHOWN_BYTES:].decode(errors="replace").strip()
            return printed.splitlines()[-1] if printed else ""
        return ""
