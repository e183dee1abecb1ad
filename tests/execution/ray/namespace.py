"""A network namespace with only loopback, because Ray's servers always listen on all addresses."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1  # netdevice(7)
_HOLDER = "import sys; sys.path.insert(0, sys.argv[1]); from tests.execution.ray.namespace import hold; hold()"


class NoNamespaceError(Exception):
    """No namespace can be created on this machine."""


class Namespace:
    """Exists until `close`. Raises NoNamespaceError."""

    def __init__(self, project: str) -> None:
        unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
        try:
            self._holder = subprocess.Popen(
                [*unshare, sys.executable, "-c", _HOLDER, project],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # So that what ends the group of the tests does not end who cleans up after it.
            )
        except FileNotFoundError as error:
            raise NoNamespaceError(str(error)) from None
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "up\n":
            assert self._holder.stderr is not None
            reason = self._holder.stderr.read()
            self._holder.communicate()
            raise NoNamespaceError(reason)

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a command in the namespace."""
        enter = ["nsenter", f"--target={self._holder.pid}", "--net"]
        if os.geteuid() != 0:
            enter += ["--user", "--preserve-credentials"]
        return [*enter, "--", *command]

    @property
    def holder(self) -> int:
        """A process in it."""
        return self._holder.pid

    def close(self) -> None:
        self._holder.communicate("")


def hold() -> None:
    """Bring loopback up, say so, and wait for the end of standard input, which is that of the tests, however they end.

    Then whatever is left in this network is killed.
    """
    network = Path("/proc/self/ns/net").readlink()
    assert network != Path(f"/proc/{os.getppid()}/ns/net").readlink(), "this is the network of all"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
    print("up", flush=True)
    sys.stdin.read()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid() and (entry / "ns/net").readlink() == network:
                os.kill(int(entry.name), signal.SIGKILL)
