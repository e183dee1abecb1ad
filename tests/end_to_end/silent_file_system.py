"""A file system that answers until it is told not to: FUSE's protocol (linux/fuse.h) without a library. Needs root."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_LOOKUP, _FORGET, _GETATTR, _OPEN, _RELEASE, _INIT, _OPENDIR, _READDIR, _RELEASEDIR = 1, 2, 3, 14, 18, 26, 27, 28, 29
_INTERRUPT = 36
_ENOENT, _EINTR, _ENOSYS = 2, 4, 38
_MNT_FORCE, _MNT_DETACH = 1, 2
_FILE = 2  # the node of the only file, beside the root's 1
_CONTENT = b"content\n"


class SilentFileSystem:
    """One file, `name`. `asked` is set once a request came that gets no answer until its process gets a signal.

    Without that not even SIGKILL would end the process.
    """

    def __init__(self, descriptor: int, silent: int, name: str) -> None:
        self.asked = threading.Event()
        self._descriptor = descriptor
        self._silent = silent
        self._name = name.encode()

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                request = os.read(self._descriptor, 1 << 18)
                _, code, unique, node = struct.unpack_from("<IIQQ", request)
                if code == self._silent and (code != _LOOKUP or request[40:].rstrip(b"\0") == self._name):
                    self.asked.set()
                elif code == _INTERRUPT:
                    self._reply(struct.unpack_from("<Q", request, 40)[0], _EINTR, b"")
                elif code != _FORGET:
                    self._reply(unique, *self._answer(code, node, request[40:]))

    def _reply(self, unique: int, error: int, body: bytes) -> None:
        with suppress(FileNotFoundError):  # The request has been answered.
            os.write(self._descriptor, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)

    def _answer(self, code: int, node: int, body: bytes) -> tuple[int, bytes]:
        if code == _INIT:
            return 0, struct.pack("<IIIIHHIIHH32x", 7, 31, 0, 0, 1, 1, 1 << 16, 1, 1, 0)
        if code == _LOOKUP:
            if body.rstrip(b"\0") != self._name:
                return _ENOENT, b""
            return 0, struct.pack("<QQQQII", _FILE, 0, 0, 0, 0, 0) + _attributes(_FILE)
        if code == _GETATTR:
            return 0, struct.pack("<QII", 0, 0, 0) + _attributes(node)
        if code in (_OPEN, _OPENDIR):
            return 0, struct.pack("<QII", 1, 0, 0)
        if code == _READDIR:
            (offset,) = struct.unpack_from("<Q", body, 8)
            entry = struct.pack("<QQII", _FILE, 1, len(self._name), 8) + self._name
            return 0, b"" if offset else entry + b"\0" * (-len(entry) % 8)
        if code in (_RELEASE, _RELEASEDIR):
            return 0, b""
        return _ENOSYS, b""


def _attributes(node: int) -> bytes:
    mode = stat.S_IFREG | 0o644 if node == _FILE else stat.S_IFDIR | 0o755
    size = len(_CONTENT) if node == _FILE else 0
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, 1, 1, 1, 1, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


@contextmanager
def silent_file_system(folder: Path, *, when: str, name: str) -> Iterator[SilentFileSystem]:
    """Mount it. It gets silent `when` the file is to be opened ("open") or looked up ("stat")."""
    descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={descriptor},rootmode=40000,user_id=0,group_id=0".encode()
    if _LIBC.mount(b"silent", os.fsencode(folder), b"fuse.silent", 0, options):
        os.close(descriptor)
        raise OSError(ctypes.get_errno(), "mount")
    served = SilentFileSystem(descriptor, _OPEN if when == "open" else _LOOKUP, name)
    thread = threading.Thread(target=served.serve, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        _LIBC.umount2(os.fsencode(folder), _MNT_FORCE | _MNT_DETACH)
        os.close(descriptor)
