"""Confines this process, and everything that it starts, to what an action may use. A forked child calls it first.

It has three parts, none of which needs privileges or a second process:

- Landlock (Linux 5.13; docs.kernel.org/userspace-api/landlock.html) denies programs in any language to open what is not
  in the listed paths: EACCES. To check whether a file exists is not to open it. POSIX semaphores and shared memory are
  files in /dev/shm, which no policy lists: what an action leaves there would be there for the next one.
- A seccomp filter (docs.kernel.org/userspace-api/seccomp_filter.html) denies sockets, except those on this machine, and
  the system calls by which processes share objects that have no path, or look into other processes.
- Of root's capabilities (capabilities(7)) only those stay that read and write files of other users. With the others
  a process could read the environment and the memory of every process, whatever Landlock says.

`read_audit` watches Python code in addition.

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
_NETLINK_USERSOCK = 2  # the only kind of netlink in which unprivileged processes send messages to each other

# The numbers of denied calls (asm/unistd.h) for the machine's own programs, and for 32-bit programs on it, which have
# another linux/audit.h. In order: System V shared memory, semaphores, queues; POSIX queues; keyrings; ptrace and its
# relatives; files by handle, which have no path that Landlock could check.
_DENIED_CALLS = {
    "x86_64": (
        (29, 30, 31, 64, 65, 66, 220, 68, 69, 70, 71, 240, 241, 248, 249, 250, 101, 310, 311, 312, 438, 304),
        0x40000003,
        (117, *range(393, 403), 420, 277, 278, 286, 287, 288, 26, 347, 348, 349, 438, 342),
    ),
    "aarch64": (
        (*range(186, 198), 180, 181, 217, 218, 219, 117, 270, 271, 272, 438, 265),
        0x40000028,
        (*range(298, 309), 312, 420, 274, 275, 309, 310, 311, 26, 376, 377, 378, 438, 371),
    ),
}

# linux/capability.h: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID. In a container, root may have to read inputs
# and write outputs that belong to other users.
_KEPT_CAPABILITIES = 0b11111
_CAPABILITY_VERSION = 0x20080522
_CAPGET, _CAPSET = {"x86_64": (125, 126), "aarch64": (90, 91)}.get(platform.machine(), (0, 0))

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
        found.append("undeclared reads by tools are not found, and shared memory stays (this kernel has no Landlock)")
    if not cuts_network():
        found.append("actions have network, System V and POSIX queues, and keyrings")
    return "; ".join(found)


def confine(policy: dict[str, Any]) -> None:
    """Apply a policy, as far as this machine supports it. Raises OSError if the kernel refuses a part of it."""
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise _error("prctl")
    _drop_capabilities()
    if not policy["network"]:
        _filter_calls()
    if version := landlock_version():
        _restrict_paths(policy, version)


def _restrict_paths(policy: dict[str, Any], version: int) -> None:
    handled = _ALL | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    scoped = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if version >= 6 else 0
    attributes = _RulesetAttributes(handled, 0, scoped)
    size = ctypes.sizeof(attributes) if version >= 6 else 16 if version >= 4 else 8
    ruleset = _LIBC.syscall(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    if ruleset < 0:
        raise _error("landlock_create_ruleset")
    try:
        for path in policy["read"]:
            _allow(ruleset, path, _READ)
        for path in (*policy["write"], policy["directory"], *_devices(policy["gpus"])):
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


def _filter(
    architecture: int, socket_call: int, denied: tuple[int, ...], other: int, denied_other: tuple[int, ...]
) -> _Program:
    """Denied calls fail with EACCES, calls that should look as if this kernel did not have them with ENOSYS."""
    # Each: code, labels to jump to if true and if false ("": the next instruction), operand. linux/bpf_common.h
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    number, first_argument, third_argument = 0, 16, 32  # offsets in seccomp_data
    lines: list[tuple[str, int, str, str, int]] = [
        ("", load, "", "", 4),  # the architecture
        ("", equal, "own", "", architecture),
        ("", equal, "", "allow", other),
        ("", load, "", "", number),
        *(("", equal, "deny", "", call) for call in denied_other),
        ("", end, "", "", _ALLOW),
        ("own", load, "", "", number),
        ("", at_least, "absent", "", _X32),
        ("", equal, "absent", "", _IO_URING_SETUP),  # which can create sockets too
        *(("", equal, "deny", "", call) for call in denied),
        ("", equal, "", "allow", socket_call),
        ("", load, "", "", first_argument),  # the family
        ("", equal, "allow", "", socket.AF_UNIX),
        ("", equal, "", "deny", socket.AF_NETLINK),
        ("", load, "", "", third_argument),  # the protocol
        ("", equal, "deny", "allow", _NETLINK_USERSOCK),
        ("absent", end, "", "", _ERRNO | errno.ENOSYS),
        ("deny", end, "", "", _ERRNO | errno.EACCES),
        ("allow", end, "", "", _ALLOW),
    ]
    places = {label: place for place, (label, *_) in enumerate(lines) if label}
    program = b"".join(
        struct.pack("HBBI", code, *(places[label] - at - 1 if label else 0 for label in (true, false)), operand)
        for at, (_, code, true, false, operand) in enumerate(lines)
    )
    return _Program(len(lines), program)


# Created before the fork, because a child pays for each page that it writes to.
_SECCOMP, _FILTER = 0, _Program()
if platform.machine() in _MACHINES:
    _ARCHITECTURE, _SECCOMP, _SOCKET = _MACHINES[platform.machine()]
    _FILTER = _filter(_ARCHITECTURE, _SOCKET, *_DENIED_CALLS[platform.machine()])
_VERSION = max(0, int(_LIBC.syscall(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)))


def _filter_calls() -> None:
    if _SECCOMP and _LIBC.syscall(_SECCOMP, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FLAG_SPEC_ALLOW, ctypes.byref(_FILTER)):
        raise _error("seccomp")


def _drop_capabilities() -> None:
    """Of this thread, and for good: "no new privileges" keeps exec from giving them back to root.

    Where the call is not permitted, they stay. The doctor tells.
    """
    if not _CAPGET:
        return
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    held = ctypes.create_string_buffer(24)  # effective, permitted and inheritable: the lower 32 of each, then the upper
    if _LIBC.syscall(_CAPGET, header, held):
        return
    effective, permitted, *_ = struct.unpack("6I", held.raw)
    kept = struct.pack("6I", effective & _KEPT_CAPABILITIES, permitted & _KEPT_CAPABILITIES, 0, 0, 0, 0)
    _LIBC.syscall(_CAPSET, header, kept)


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"the sandbox: {what}: {os.strerror(number)}")
