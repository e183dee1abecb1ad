"""BuildGrid on loopback: a server of the Remote Execution API that others wrote. It names blobs by SHA-256 alone.

Its dependencies are many and pinned by `locks/buildgrid.txt`; they are installed once, into an environment of their own
in the user's cache folder, which takes a minute or two.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

LOCK = Path(__file__).parents[2] / "locks" / "buildgrid.txt"
_START_SECONDS = 180.0
_CONFIGURATION = """\
server:
  - !channel
    address: 127.0.0.1:{port}
    insecure-mode: true
instances:
  - name: main/a
    storages:
      - !disk-storage &blobs
        path: {folder}/blobs
    services:
      - !action-cache
        cache: !lru-action-cache
          storage: *blobs
          max-cached-refs: 100000
          allow-updates: true
      - !cas
        storage: *blobs
      - !bytestream
        storage: *blobs
  - name: frozen
    storages:
      - !disk-storage &frozen
        path: {folder}/frozen
    services:
      - !action-cache
        cache: !lru-action-cache
          storage: *frozen
          max-cached-refs: 1000
          allow-updates: false
      - !cas
        storage: *frozen
      - !bytestream
        storage: *frozen
"""


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """The address `127.0.0.1:port` of a server with the instances `main/a` and `frozen`, which takes no results."""
    program = environment() / "bin" / "bgd"
    log = folder / "log"
    for _ in range(3):
        port = _free_port()
        (folder / "server.yml").write_text(_CONFIGURATION.format(port=port, folder=folder))
        with log.open("ab") as stream:
            process = subprocess.Popen(
                [program, "server", "start", str(folder / "server.yml")], stdout=stream, stderr=stream, cwd=folder
            )
        try:
            if _came_up(process, port):
                yield f"127.0.0.1:{port}"
                return
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    raise RuntimeError(f"BuildGrid did not start:\n{log.read_text()[-4000:]}")


def _came_up(process: subprocess.Popen[bytes], port: int) -> bool:
    end = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        time.sleep(0.1)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment() -> Path:
    """Where BuildGrid is installed: on first use, by one process at a time, and anew for another lock file."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlcbuild-tests"
    version = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    made = base / f"buildgrid-{version}"
    base.mkdir(parents=True, exist_ok=True)
    with (base / "buildgrid.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not (made / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(made)], check=True)
            install = ["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", str(LOCK)]
            subprocess.run([str(made / "bin" / "python"), *install], check=True)
            (made / "complete").touch()
    return made
