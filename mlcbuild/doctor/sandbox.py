"""What the sandbox of actions does on this machine: a confined process tries to get out."""

from __future__ import annotations

from mlcbuild.doctor.children import run_python
from mlcbuild.doctor.finding import Finding, failed, ok, warning
from mlcbuild.execution.sandbox import landlock_version

_SECONDS = 20.0
_TRIAL = """
import ctypes, json, os, socket, sys
from mlcbuild.execution.sandbox import confine

parent = os.getpid()
beside = os.path.join(os.getcwd(), "beside")
os.mkdir("action")
open(beside, "w").close()
listener = socket.socket(socket.AF_UNIX)
listener.bind(f"\\0mlcbuild-doctor-{parent}")
listener.listen()
read, write = os.pipe()
if pid := os.fork():
    os.close(write)
    found = os.fdopen(read).read()
    if os.waitpid(pid, 0)[1]:
        sys.exit("the confined process ended early")
    print(found)
    sys.exit()

libc = ctypes.CDLL(None, use_errno=True)
def call(number):
    if number < 0:
        raise OSError
def shared_memory():
    path = f"/dev/shm/mlcbuild-doctor-{parent}"
    open(path, "w").close()
    os.unlink(path)
def system_v():
    segment = libc.shmget(0, 1, 0o1600)
    call(segment)
    libc.shmctl(segment, 0, None)
attempts = {
    "read files that are no inputs": lambda: open(beside).close(),
    "read the environment of other processes": lambda: open(f"/proc/{parent}/environ").close(),
    "leave shared memory": shared_memory,
    "use System V shared memory": system_v,
    "use the network": lambda: socket.socket(socket.AF_INET).close(),
    "connect to abstract sockets": lambda: socket.socket(socket.AF_UNIX).connect(f"\\0mlcbuild-doctor-{parent}"),
}
action = os.path.join(os.getcwd(), "action")
os.chdir(action)
try:
    confine({"read": ["/proc"], "write": [], "directory": action, "network": False, "gpus": False})
except OSError as error:
    os.write(write, json.dumps({"refused": str(error)}).encode())
    os._exit(0)
possible = []
for name, attempt in attempts.items():
    try:
        attempt()
        possible.append(name)
    except OSError:
        pass
os.write(write, json.dumps({"possible": possible}).encode())
os._exit(0)
"""


def sandbox() -> Finding:
    """Tested in a separate process. Builds work without a sandbox, and find fewer errors."""
    child = run_python(_TRIAL, seconds=_SECONDS)
    if child.ended:
        return failed(f"a confined process {child.ended}", "build with --no-sandbox")
    if refused := child.document.get("refused"):
        return failed(str(refused), "build with --no-sandbox")
    possible = child.document.get("possible")
    found = [str(one) for one in possible] if isinstance(possible, list) else []
    version = landlock_version()
    if not found:
        return ok("actions reach their inputs and the system alone, and share nothing", landlock=version)
    advice = (
        "this kernel has no Landlock, or it is turned off: Linux 5.13 or newer, with landlock among the kernel's LSMs"
        if not version
        else "Linux 6.12 or newer denies abstract sockets"
        if version < 6
        else "a container or another filter may change what system calls do here"
    )
    return warning(f"actions can {', '.join(found)}", advice, landlock=version)
