"""Nothing passes from one action to another but declared outputs, and no action sees into other processes.

Each test runs as the user of the tests and, if that is root, as an ordinary user as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlcbuild.engine.executor import OutcomeKind
from mlcbuild.execution import sandbox
from mlcbuild.execution.local import LocalExecutor
from tests.end_to_end.world import wait_until
from tests.execution.conftest import STAGES

if TYPE_CHECKING:
    from tests.execution.conftest import World

needs_landlock = pytest.mark.skipif(sandbox.landlock_version() == 0, reason="this kernel has no Landlock")
needs_scopes = pytest.mark.skipif(sandbox.landlock_version() < 6, reason="this kernel's Landlock has no scopes")
needs_filter = pytest.mark.skipif(not sandbox.cuts_network(), reason="system calls are not filtered here")

_USERS = [None, 65534] if os.getuid() == 0 else [None]
_SANDBOX = Path(sandbox.__file__)
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/sys", "/proc")

# What an action might leave behind for the next one, or use while both run. `name` is new in each test.
CHANNELS = {
    "a POSIX semaphore": "import multiprocessing; multiprocessing.Semaphore(1)",
    "POSIX shared memory": "from multiprocessing import shared_memory; shared_memory.SharedMemory(create=True, size=9)",
    "a file in /dev/shm": "open('/dev/shm/' + name, 'w').write('left')",
    "a folder in /dev/shm": "os.mkdir('/dev/shm/' + name)",
    "a file in /var/tmp": "open('/var/tmp/' + name, 'w').write('left')",
    "a file in /tmp": "open('/tmp/' + name, 'w').write('left')",
    "System V shared memory": "call(libc.shmget(0x6d6c63, 4096, 0o1666))",
    "private System V shared memory": "call(libc.shmget(0, 4096, 0o1600))",
    "a System V semaphore": "call(libc.semget(0x6d6c63, 1, 0o1666))",
    "a System V queue": "call(libc.msgget(0x6d6c63, 0o1666))",
    "a POSIX queue": "call(libc.mq_open(b'/' + name.encode(), 0o102, 0o600, None))",
    "the user's keyring": "call(libc.syscall(ADD_KEY, b'user', name.encode(), b'left', 4, -4))",
    "a keyring of the session": "call(libc.syscall(KEYCTL, 0, -3, 1))",
    "netlink between processes": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_USERSOCK)",
    "a setting of the kernel": "open('/proc/sys/kernel/domainname', 'w').write('left')",
    "another process's setting": "open(f'/proc/{os.getppid()}/oom_score_adj', 'w').write('0')",
}
_NEEDS_LANDLOCK = ("POSIX s", "/dev/shm", "/var/tmp", "/tmp", "setting")
_PRELUDE = """
import ctypes, os, platform, socket, sys
name = sys.argv[-1]
libc = ctypes.CDLL(None, use_errno=True)
ADD_KEY, KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(platform.machine(), (0, 0))
def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""


@pytest.fixture
def name() -> Iterator[str]:
    name = f"mlcbuild-{uuid.uuid4().hex}"
    yield name
    for folder in ("/dev/shm", "/var/tmp", "/tmp"):
        path = Path(folder, name)
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)


@pytest.fixture
def action() -> Iterator[Path]:
    """A directory that ordinary users reach too."""
    with tempfile.TemporaryDirectory(prefix="mlcbuild-") as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


def confined_run(
    program: str, directory: Path, *arguments: str, user: int | None, gpus: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a Python program as a tool of an action runs: confined, and by exec."""
    policy = {
        "read": [*_SYSTEM, sys.base_prefix, sys.prefix],
        "write": ["/proc"] if gpus else [],
        "directory": str(directory),
        "network": False,
        "gpus": gpus,
    }
    launcher = (
        "import json, os, pathlib, sys\n"
        "sandbox = {'__name__': 'sandbox'}\n"
        "exec(sys.argv[1], sandbox)\n"
        "policy, user, program, *rest = json.loads(sys.argv[2])\n"
        "os.chdir(policy['directory'])\n"
        "if user:\n"
        "    os.setgroups([]); os.setgid(user); os.setuid(user)\n"
        "sandbox['confine'](policy)\n"
        "os.execve(sys.executable, [sys.executable, '-I', '-S', '-c', program, *rest], {'TMPDIR': os.getcwd()})\n"
    )
    given = json.dumps([policy, user, program, *arguments])
    # An ordinary user may not be able to read where the tests' own interpreter is.
    interpreter = "/usr/bin/python3" if user else os.path.realpath(sys.executable)
    if not Path(interpreter).exists():
        pytest.skip(f"there is no {interpreter}")
    return subprocess.run(
        [interpreter, "-I", "-S", "-c", launcher, _SANDBOX.read_text(), given],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("gpus", [False, True])
@pytest.mark.parametrize("user", _USERS)
@pytest.mark.parametrize("channel", CHANNELS)
def test_an_action_can_leave_nothing_for_another(
    channel: str, user: int | None, gpus: bool, name: str, action: Path
) -> None:
    if any(part in channel for part in _NEEDS_LANDLOCK) and not sandbox.landlock_version():
        pytest.skip("this kernel has no Landlock")
    if gpus and "setting" in channel:
        pytest.skip("drivers of GPUs write to /proc")
    if not sandbox.cuts_network():
        pytest.skip("system calls are not filtered here")
    done = confined_run(_PRELUDE + CHANNELS[channel], action, name, user=user, gpus=gpus)
    assert "Permission denied" in done.stderr, (done.stdout, done.stderr)
    assert "sandbox['confine']" not in done.stderr
    allowed = confined_run("open('x', 'w'); print('ran')", action, user=user, gpus=gpus)
    assert allowed.stdout == "ran\n", allowed.stderr


@needs_scopes
@pytest.mark.parametrize("gpus", [False, True])
@pytest.mark.parametrize("user", _USERS)
def test_an_abstract_socket_of_another_process_cannot_be_reached(
    user: int | None, gpus: bool, name: str, action: Path
) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen()
        program = _PRELUDE + "socket.socket(socket.AF_UNIX).connect('\\0' + name)"
        done = confined_run(program, action, name, user=user, gpus=gpus)
    assert "Operation not permitted" in done.stderr, (done.stdout, done.stderr)
    own = _PRELUDE + (
        "server = socket.socket(socket.AF_UNIX); server.bind('\\0' + name); server.listen()\n"
        "socket.socket(socket.AF_UNIX).connect('\\0' + name); print('connected')"
    )
    assert confined_run(own, action, name + "2", user=user, gpus=gpus).stdout == "connected\n"


@pytest.mark.parametrize("user", _USERS)
@pytest.mark.parametrize("file", ["environ", "maps", "mem", "auxv", "stack", "fd/0", "cwd", "root"])
def test_the_clients_process_cannot_be_looked_into(file: str, user: int | None, action: Path) -> None:
    """The parent of the tool has a secret in its environment. It runs as the same user, with all that root may."""
    if user and not sandbox.landlock_version():
        pytest.skip("this kernel has no Landlock")
    program = (
        "import os, sys\n"
        "for pid in sys.argv[1].split():\n"
        "    path = f'/proc/{pid}/' + sys.argv[2]\n"
        "    try:\n"
        "        if sys.argv[2] in ('cwd', 'root', 'fd/0'):\n"
        "            seen = os.readlink(path)\n"
        "        else:\n"
        "            seen = open(path, 'rb').read(9)\n"
        "        print('saw', path, seen)\n"
        "    except OSError as error:\n"
        "        print(error)\n"
    )
    other = subprocess.Popen(
        ["/bin/sleep", "60"], env={"SECRET": "xyzzy"}, preexec_fn=(lambda: _become(user)) if user else None
    )
    try:
        done = confined_run(program, action, f"{other.pid} {os.getpid()}", file, user=user)
    finally:
        other.kill()
        other.wait()
    assert "saw" not in done.stdout, done.stdout
    assert done.stdout.count("ermi") == 2, (done.stdout, done.stderr)


def _become(user: int) -> None:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


@pytest.mark.skipif(os.getuid() != 0, reason="only root has capabilities")
def test_root_keeps_what_reads_inputs_and_loses_what_opens_processes(action: Path) -> None:
    given = action / "of-somebody-else"
    given.write_text("read\n")
    given.chmod(0o600)
    os.chown(given, 12345, 12345)
    program = (
        "print(open('of-somebody-else').read(), end='')\n"
        "print(open('/proc/self/status').read().partition('CapEff:')[2].split()[0])\n"
        "import subprocess\n"
        "print(subprocess.run(['/bin/grep', 'CapEff', '/proc/self/status'], capture_output=True, text=True).stdout)"
    )
    done = confined_run(program, action, user=None)
    assert done.stdout.startswith("read\n"), done.stderr
    (effective,) = {int(word, 16) for word in done.stdout.split() if len(word) == 16}
    assert effective & ~sum(1 << number for number in (0, 1, 2, 3, 4)) == 0
    assert effective & 1 << 1


@needs_filter
@pytest.mark.parametrize("user", _USERS)
@pytest.mark.parametrize(
    "call",
    [
        "libc.ptrace(0, 0, 0, 0)",  # PTRACE_TRACEME: its fork server would have to wait for it
        "libc.ptrace(16, os.getppid(), 0, 0)",  # PTRACE_ATTACH
        "libc.ptrace(0x4206, os.getppid(), 0, 0)",  # PTRACE_SEIZE
    ],
)
def test_no_process_is_traced(call: str, user: int | None, action: Path) -> None:
    done = confined_run(_PRELUDE + f"call({call})", action, "", user=user)
    assert "Permission denied" in done.stderr, (done.stdout, done.stderr)


@pytest.fixture
def confined(world: World) -> World:
    world.executor = LocalExecutor(
        world.store, jobs=2, scratch=world.scratch, module_paths=(STAGES,), sandbox=True, hidden=(world.store.root,)
    )
    world.executor.start(world.outcomes.put)
    return world


@needs_filter
def test_a_tool_that_attaches_to_its_parent_or_is_traced_by_its_server_ends(confined: World) -> None:
    """Both would leave a stopped process, for whose end the build waits."""
    attach = "import ctypes, os; l = ctypes.CDLL(None); l.ptrace(16, os.getppid(), 0, 0)"
    shell = f"{sys.executable} -c '{attach}'; echo done > out.txt"
    assert confined.content(confined.run(confined.tool("/bin/sh", "-c", shell))) == "done\n"
    traced = (
        "import ctypes, os, signal; ctypes.CDLL(None).ptrace(0, 0, 0, 0); "
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN); os.kill(os.getpid(), signal.SIGUSR1); open('out.txt', 'w')"
    )
    assert confined.run(confined.tool(sys.executable, "-c", traced)).kind is OutcomeKind.SUCCEEDED


@needs_filter
@needs_landlock
@pytest.mark.parametrize(
    "program",
    [
        "import multiprocessing; multiprocessing.Lock()",
        "from multiprocessing import shared_memory; shared_memory.SharedMemory(create=True, size=9)",
        "open('/dev/shm/x', 'w')",
    ],
)
def test_a_tool_without_semaphores_is_told_why(confined: World, program: str) -> None:
    outcome = confined.run(confined.tool(sys.executable, "-c", program))
    assert outcome.kind is OutcomeKind.FAILED
    assert "actions have no shared memory, semaphores or message queues between processes" in outcome.message


@needs_landlock
def test_a_stage_without_semaphores_is_told_why(confined: World) -> None:
    outcome = confined.run(confined.stage("lock"))
    assert outcome.kind is OutcomeKind.FAILED
    assert "actions have no shared memory, semaphores or message queues between processes" in outcome.message


@needs_landlock
def test_what_another_process_has_in_shared_memory_is_not_read(confined: World, name: str) -> None:
    Path("/dev/shm", name).write_text("left by another")
    outcome = confined.run(confined.tool("/bin/cp", f"/dev/shm/{name}", "out.txt"))
    assert outcome.kind is OutcomeKind.FAILED
    outcome = confined.run(confined.stage("read", path=f"/dev/shm/{name}", swallow=False))
    assert f"read /dev/shm/{name}, which is not a declared input" in outcome.message


@needs_filter
def test_threads_pipes_and_pools_of_processes_keep_working(confined: World) -> None:
    program = (
        "import multiprocessing, os, queue, subprocess, threading, tempfile\n"
        "lock = threading.Lock()\n"
        "reader, writer = multiprocessing.Pipe()\n"
        "process = multiprocessing.get_context('fork').Process(target=writer.send, args=('piped',))\n"
        "process.start(); piped = reader.recv(); process.join()\n"
        "with tempfile.TemporaryFile() as file:\n"
        "    file.write(b'x')\n"
        "os.memfd_create('x')\n"
        "open('out.txt', 'w').write(piped)\n"
    )
    assert confined.content(confined.run(confined.tool(sys.executable, "-c", program))) == "piped"


@needs_landlock
def test_no_stage_writes_compiled_code_for_the_next_and_none_is_compiled_twice(confined: World) -> None:
    cache = confined.scratch / "bytecode"
    request = confined.stage("forge", cache=str(cache))
    assert confined.content(confined.run(request)).split() == ["refused"]
    wait_until(lambda: any(cache.iterdir()), "compiled code")  # It is written after the outcome is known.
    wait_until(lambda: confined.content(confined.run(confined.stage("compiled"))) == "[]", "all compiled code")
