"""Makes the sandbox policy of an action: it may read its inputs, the system and Python, and write its own directory."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import mlcbuild
from mlcbuild.engine.action import StageCall
from mlcbuild.engine.executor import ExecutionRequest
from mlcbuild.execution.layout import Layout

# Every action may read these, and never /home, /root, /tmp, /var, /run, /mnt or /srv.
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/gnu",
    "/sys",
    "/proc",
)
_ABSOLUTE_PATH = re.compile(r"(?<![\w.])/[^\s:'\"`,;()<>]+")
_DENIED = ("permission denied", "eacces")
_MOST_NAMED = 5


class SandboxPolicies:
    """The policies for the actions of a build (see `sandbox`).

    Of the folders `workspace` an action can read only its declared inputs and the modules of its stage. Of the folders
    `hidden`, such as the cache and the user's home, it can read only its inputs.
    """

    def __init__(self, *, workspace: Sequence[Path], hidden: Sequence[Path], bytecode: Path) -> None:
        package = Path(mlcbuild.__file__).parent
        self._workspace = [os.path.realpath(path) for path in workspace]
        # In a checkout some of our packages are links to directories beside mlcbuild. Stages import what is installed
        # beside mlcbuild, but nothing else of its checkout.
        rooms = [room.resolve() for room in package.iterdir() if room.is_symlink()]
        checkout = [package.parent] if rooms else []
        self._hidden = [*self._workspace, *(os.path.realpath(path) for path in (*hidden, *checkout))]
        self._bytecode = str(bytecode)
        self._shared = sorted(
            {
                found
                for path in (*_SYSTEM, *_python_paths(self._workspace))
                for found in without(os.path.realpath(path), self._hidden)
            }
        )
        self._package = [str(package), *map(str, rooms)]

    def of(self, request: ExecutionRequest, directory: Path, layout: Layout) -> dict[str, object]:
        """The policy for one action in its directory, in the form that `sandbox.confine` takes."""
        read = [*self._shared, *(str(blob.file) for blob in layout.blobs), *map(str, layout.trees)]
        write: list[str] = []
        command = request.command
        if isinstance(command, StageCall):
            read += [*self._package, *self._modules(request, command)]
            read.append(self._bytecode)
        elif os.path.isabs(command.arguments[0]):  # noqa: PTH117
            read += _installation(command.arguments[0], self._hidden)
        if request.requirements.gpus > 0:
            write.append("/proc")  # CUDA's driver does not start without.
        return {
            "read": read,
            "write": write,
            "directory": str(directory),
            "network": request.requirements.network,
            "gpus": request.requirements.gpus > 0,
        }

    def denied_paths(self, log: bytes) -> list[str]:
        """The paths in a tool's log that it says it was denied, as far as the sandbox is the reason.

        They exist, or could be created, and no policy allows them.
        """
        found: dict[str, None] = {}
        for line in os.fsdecode(log).splitlines():
            if any(word in line.lower() for word in _DENIED):
                for path in _ABSOLUTE_PATH.findall(line):
                    exists = os.path.lexists(path) or os.path.isdir(os.path.dirname(path))  # noqa: PTH112, PTH120
                    if exists and not self._is_shared(path):
                        found[path] = None
        return list(found)[:_MOST_NAMED]

    def _is_shared(self, path: str) -> bool:
        real = os.path.realpath(path)
        if is_below(real, "/dev/shm"):
            return False
        return any(is_below(real, shared) for shared in (*self._shared, "/dev"))

    def _modules(self, request: ExecutionRequest, call: StageCall) -> list[str]:
        """The workspace's files that are in a stage's key; all its files if the key is not known."""
        if not request.allowed_modules:
            return list(self._workspace)
        files = [f"{root}/{path}" for root in self._workspace for path in request.code]
        for module in request.allowed_modules.union(call.modules):
            parts = module.split(".")
            if parts[0] == mlcbuild.__name__:
                continue
            for root in self._workspace:
                files.append(f"{root}/{'/'.join(parts)}.py")
                files += [f"{root}/{'/'.join(parts[:depth])}/__init__.py" for depth in range(1, len(parts) + 1)]
        return [path for path in dict.fromkeys(files) if os.path.isfile(path)]  # noqa: PTH113


def without(path: str, hidden: Iterable[str]) -> list[str]:
    """`path`; or, if hidden directories lie below it, everything else that lies there."""
    inside = [one for one in hidden if is_below(one, path)]
    if not inside:
        return [path]
    if path in inside:
        return []
    try:
        names = os.listdir(path)  # noqa: PTH208
    except OSError:
        return []
    return [found for name in names for found in without(f"{path.rstrip('/')}/{name}", inside)]


def is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(above.rstrip("/") + "/")


def _python_paths(workspace: Sequence[str]) -> list[str]:
    """The folders of this interpreter and of what it can import. Of the workspace only a virtual environment counts."""
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    libraries = {path for path in sys.path if path and os.path.exists(path)}  # noqa: PTH110
    own = {path for path in libraries if any(is_below(os.path.realpath(path), root) for root in workspace)}
    return sorted(prefixes | (libraries - own))


def _installation(program: str, hidden: Sequence[str]) -> list[str]:
    """A program and what was installed with it: PREFIX for PREFIX/bin/NAME, unless PREFIX holds a hidden folder."""
    found = []
    for path in {program, os.path.realpath(program)}:
        folder, prefix = os.path.dirname(path), os.path.dirname(os.path.dirname(path))  # noqa: PTH120
        is_prefix = os.path.basename(folder) in ("bin", "sbin") and prefix != "/"  # noqa: PTH119
        found.append(prefix if is_prefix and not any(is_below(one, prefix) for one in hidden) else path)
    return found
