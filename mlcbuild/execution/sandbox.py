"""Confines this process, and everything that it starts, to what an action may use. A forked child calls it first.

It has three parts, none of which needs privileges or a second process:

- Landlock (Linux 5.13; docs.kernel.org/userspace-api/landlock.html) denies programs in any language to open what is not
  in the listed paths: EACCES. To check whether a file exists is not to open it.
- A seccomp filter (docs.kernel.org/userspace-api/seccomp_filter.html) denies sockets, except those on this machine.
- An audit hook (PEP 578) records the paths that Python code of a stage tried to read, even if it ignored the error.

The fork server loads this file by path. It imports only the standard library. A policy is JSON::

    {"read": [path], "write": [path], "directory": path, "network": false, "gpus": false}
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_NO_NEW_PRIVS = 38

# linux/landlock.h; the numbers are the same on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL = (1 << 13) - 1  # everything in version 1
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # versions 2 and 3: links and renames between directories; truncating
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1 << 0, 1 << 1  # version 6
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE

# linux/audit.h, and the numbers of seccomp(2) and socket(2).
_MACHINES = {"x86_64": (0xC000003E, 317, 41), "aarch64": (0xC00000B7, 277, 198)}
_IO_URING_SETUP = 425
_X32 = 0x40000000  # on x86_64, a second set of numbers for the same calls
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FLAG_SPEC_ALLOW = 1 << 2  # Otherwise some kernels slow down everything under a filter.
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOCAL_FAMILIES = (socket.AF_UNIX, socket.AF_NETLINK)

_SYSTEM_WRITTEN = ("/proc", "/dev/shm")  # a thread's name is set by a file in /proc
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")
_GPU_DEVICES = ("nvidia", "dri", "kfd")


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def landlock_version() -> int:
    """The version of Landlock in this kernel; 0 if it has none or it is turned off."""
    return _VERSION


def cuts_network() -> bool:
    """Whether actions can be denied the network on this kind of machine."""
    return _SECCOMP != 0


def shortcomings() -> str:
    """What the sandbox does not catch on this machine but does on others, for people; "" if it catches everything."""
    found = []
    if not landlock_version():
        found.append("undeclared reads by tools are not found (this kernel has no Landlock)")
    if not cuts_network():
        found.append("actions have network")
    return "; ".join(found)


def confine(policy: dict[str, Any]) -> None:
    """Apply a policy, as far as this machine supports it. Raises OSError if the kernel refuses a part of it."""
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise _error("prctl")
    if not policy["network"]:
        _cut_network()
    if version := landlock_version():
        _restrict_paths(policy, version)


def _restrict_paths(policy: dict[str, Any], version: int) -> None:
    handled = _ALL | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    # GPU drivers connect to services by such sockets.
    scoped = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if version >= 6 and not policy["gpus"] else 0
    attributes = _RulesetAttributes(handled, 0, scoped)
    size = ctypes.sizeof(attributes) if version >= 6 else 16 if version >= 4 else 8
    ruleset = _LIBC.syscall(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    if ruleset < 0:
        raise _error("landlock_create_ruleset")
    try:
        for path in policy["read"]:
            _allow(ruleset, path, _READ)
        for path in (*policy["write"], *_SYSTEM_WRITTEN, policy["directory"], *_devices(policy["gpus"])):
            _allow(ruleset, path, handled)
        if _LIBC.syscall(_RESTRICT_SELF, ruleset, 0):
            raise _error("landlock_restrict_self")
    finally:
        os.close(ruleset)


def _devices(with_gpus: bool) -> list[str]:
    found = [f"/dev/{name}" for name in _DEVICES]
    if with_gpus:
        found += [f"/dev/{name}" for name in os.listdir("/dev") if name.startswith(_GPU_DEVICES)]  # noqa: PTH208
    return found


def _allow(ruleset: int, path: str, access: int) -> None:
    """Paths that do not exist are left out."""
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rule = _PathBeneath(access, parent)
        if _LIBC.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0):
            rule.access = access & _OF_FILES  # Nothing else is valid for a file.
            if _LIBC.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0):
                raise _error(f"landlock_add_rule {path}")
    finally:
        os.close(parent)


def _filter(architecture: int, socket_call: int) -> _Program:
    # Each: code, jumps if true and if false (from the next instruction), operand. linux/bpf_common.h
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    families = len(_LOCAL_FAMILIES)
    program = [
        (load, 0, 0, 4),  # the architecture, in seccomp_data
        (equal, 0, 4, architecture),  # calls for another one, as by 32-bit programs, are allowed
        (load, 0, 0, 0),  # the call's number
        (at_least, 3, 0, _X32),
        (equal, 2, 0, _IO_URING_SETUP),  # which can create sockets too
        (equal, 2, 0, socket_call),
        (end, 0, 0, _ALLOW),
        (end, 0, 0, _ERRNO | errno.ENOSYS),
        (load, 0, 0, 16),  # the first argument: the family
        *((equal, families - index, 0, family) for index, family in enumerate(_LOCAL_FAMILIES)),
        (end, 0, 0, _ERRNO | errno.EACCES),
        (end, 0, 0, _ALLOW),
    ]
    return _Program(len(program), b"".join(struct.pack("HBBI", *instruction) for instruction in program))


# Created before the fork, because a child pays for each page that it writes to.
_SECCOMP, _FILTER = 0, _Program()
if platform.machine() in _MACHINES:
    _ARCHITECTURE, _SECCOMP, _SOCKET = _MACHINES[platform.machine()]
    _FILTER = _filter(_ARCHITECTURE, _SOCKET)
_VERSION = max(0, int(_LIBC.syscall(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)))


def _cut_network() -> None:
    if _SECCOMP and _LIBC.syscall(_SECCOMP, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FLAG_SPEC_ALLOW, ctypes.byref(_FILTER)):
        raise _error("seccomp")


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"the sandbox: {what}: {os.strerror(number)}")


class ReadAudit:
    """An audit hook that denies reads outside a policy, and records their paths in `undeclared`, in order."""

    def __init__(self, policy: dict[str, Any]) -> None:
        self.undeclared: list[str] = []
        self.tried_network = False
        self._network = bool(policy["network"])
        readable = (*policy["read"], *policy["write"], *_SYSTEM_WRITTEN, policy["directory"], "/dev")
        self._exact = frozenset(readable)
        self._below = tuple(path.rstrip("/") + "/" for path in readable)

    def watch(self) -> None:
        """From now on, for good: Python cannot remove such a hook."""
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not flags & (os.O_WRONLY | os.O_RDWR):  # Landlock denies writes elsewhere.
                self._check(path)
        elif event in ("os.listdir", "os.scandir"):
            self._check(arguments[0])
        elif event == "socket.__new__" and arguments[1] not in _LOCAL_FAMILIES:
            self.tried_network = not self._network

    def _check(self, given: object) -> None:
        if not isinstance(given, str | bytes | os.PathLike):
            return
        path = os.fsdecode(given)
        if not path or (path[0] != "/" and ".." not in path):
            return  # It is in the action's directory, where links lead to inputs.
        if self._is_declared(os.path.abspath(path)) or self._is_declared(os.path.realpath(path)):  # noqa: PTH100
            return
        if not os.path.lexists(path):
            return
        if path not in self.undeclared:
            self.undeclared.append(path)
        raise PermissionError(errno.EACCES, "not an input of this action", path)

    def _is_declared(self, path: str) -> bool:
        return path in self._exact or path.startswith(self._below)
