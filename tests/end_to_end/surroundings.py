"""Two places to build in that share nothing but the machine: a folder of the tests, and another user's far away.

The other place has an interpreter, a standard library, a virtual environment and an mlcbuild of its own, each below
paths with spaces and letters beyond ASCII; what can be is hard-linked. Its clock and its host's name are changed by a
small library that the loader puts before the C library, in the interpreter alone: an action's environment is empty, so
no variable would get that far.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import stat
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tests.end_to_end.world import PROJECT

CLOCK_SECONDS = 1_000 * 86_400 + 12_345
HAS_COMPILER = shutil.which("gcc") is not None
_NOBODY = 65_534
_LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "idlelib", "ensurepip"})
_CLOCK = """
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
  long result = syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += SECONDS;
  return (int)result;
}
int gettimeofday(struct timeval *now, void *zone) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *told) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (told) *told = precise.tv_sec;
  return precise.tv_sec;
}
int uname(struct utsname *told) {
  long result = syscall(SYS_uname, told);
  strcpy(told->nodename, "elsewhere");
  return (int)result;
}
int gethostname(char *name, size_t size) {
  strncpy(name, "elsewhere", size);
  return 0;
}
"""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Where and as whom commands run: a workspace in `root`, its disk cache in `cache`."""

    root: Path
    cache: Path
    python: Path
    variables: Mapping[str, str]
    umask: int
    jobs: int
    user: int | None = None  # None for whoever runs the tests

    def at(self, name: str) -> Surroundings:
        """The same user and machine with another workspace, beside this one, and another disk cache."""
        root, home = self.root.parent / name, self.cache.parent.parent
        root.mkdir()
        self.give(root)
        cache = home / f"cache of {name}"
        return replace(
            self, root=root, cache=cache / "mlcbuild", variables={**self.variables, "XDG_CACHE_HOME": str(cache)}
        )

    def install(self, extra: str) -> None:
        """What `pip install mlcbuild[extra]` adds in a place that is not the tests' own."""
        if self.python != Path(sys.executable):
            (site,) = self.python.parents[1].glob("lib/*/site-packages")
            _link_distributions(site, [extra])

    def has_module(self, name: str) -> bool:
        """Whether what runs here can import a module."""
        asked = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
        return subprocess.run([str(self.python), "-c", asked], cwd="/", env={}, check=False).returncode == 0

    def write(self, path: str, content: bytes) -> None:
        """A file of the workspace, of the user's own."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        self.give(file.parent, file)

    def give(self, *paths: Path) -> None:
        """Make paths the user's own."""
        for path in paths:
            if self.user is not None:
                os.chown(path, self.user, self.user)

    def start(self, *arguments: str, events: str) -> subprocess.Popen[bytes]:
        """`mlcbuild build` in the workspace; what it says goes to `printed`, its events to a file of that name."""
        options = ["--jobs", str(self.jobs), "--events", events]
        with self.printed.open("wb") as printed:
            return subprocess.Popen(
                [str(self.python), "-m", "mlcbuild.cli.main", "build", *options, *arguments],
                cwd=self.root,
                env=dict(self.variables),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                umask=self.umask,
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else (),
            )

    @property
    def printed(self) -> Path:
        return self.root / "printed.txt"


def usual(folder: Path) -> Surroundings:
    """The interpreter and the project that the tests themselves run with."""
    root = folder / "w"
    root.mkdir(parents=True)
    return Surroundings(
        root=root,
        cache=folder / "cache/mlcbuild",
        python=Path(sys.executable),
        variables={
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(PROJECT),
        },
        umask=0o022,
        jobs=4,
    )


def foreign(folder: Path, *, clock_seconds: int = CLOCK_SECONDS, extras: Sequence[str] = ("cuda",)) -> Surroundings:
    """All that can differ does. `folder` is one that every user can reach, with no space in its path. The clock is so
    many seconds ahead, and mlcbuild is installed with these extras.
    """
    place = folder / "ein ganz anderer Ort, ünïcode 日本"
    root, home, temporary = place / "some/where deeper/the workspace", place / "home", place / "temporary files"
    for directory in (root, home, temporary):
        directory.mkdir(parents=True)
    python = _environment(place, folder, clock_seconds, extras)
    user = _NOBODY if os.geteuid() == 0 and _can_run(python, _NOBODY) else None
    made = Surroundings(
        root=root,
        cache=home / "ça che/mlcbuild",
        python=python,
        variables={
            "PATH": "/nonexistent:/usr/bin:/bin",
            "HOME": str(home),
            "USER": "somebody",
            "LOGNAME": "somebody",
            "XDG_CACHE_HOME": str(home / "ça che"),
            "XDG_CONFIG_HOME": str(home / "configuration"),
            "XDG_DATA_HOME": str(home / "data"),
            "TMPDIR": str(temporary),
            "LANG": "tr_TR.UTF-8",
            "TZ": "Asia/Kathmandu",
            "PYTHONHASHSEED": "4711",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "7",
            "TVM_NUM_THREADS": "3",
            "CUDA_HOME": "/nonexistent/cuda",
            "CUDA_VISIBLE_DEVICES": "5",
            "SOURCE_DATE_EPOCH": "1",
        },
        umask=0o077,
        jobs=1,
        user=user,
    )
    made.give(*(path for path in (root, *root.parents) if path.is_relative_to(place)), home, temporary)
    return made


def _environment(place: Path, folder: Path, clock_seconds: int, extras: Sequence[str]) -> Path:
    """The interpreter of a virtual environment with mlcbuild and what it requires, and nothing else."""
    base = _interpreter(place / "python")
    environment = place / "virtual environment"
    site = environment / "lib" / base.name / "site-packages"
    _install(site, extras)
    (environment / "pyvenv.cfg").write_text(
        f"home = {base.parent}\ninclude-system-site-packages = false\n", encoding="utf-8"
    )
    python = environment / "bin/python"
    python.parent.mkdir()
    preload = f"export LD_PRELOAD={shlex.quote(str(_other_clock(folder, clock_seconds)))}\n" if HAS_COMPILER else ""
    python.write_text(
        f"#!/bin/bash\n{preload}export LD_LIBRARY_PATH={shlex.quote(str(base.parents[1] / 'lib'))}\n"
        f'exec -a "$0" {shlex.quote(str(base))} "$@"\n',
        encoding="utf-8",
    )
    python.chmod(0o755)
    return python


def _interpreter(destination: Path) -> Path:
    """A copy of this Python without what is installed in it."""
    prefix = Path(sys.base_prefix)
    program = prefix / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = Path(sysconfig.get_path("stdlib"))
    for file in (program, *prefix.glob("lib/libpython3*.so*")):
        _link(file, destination / file.relative_to(prefix))
    for folder, folders, names in os.walk(library):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        for name in names:
            file = Path(folder, name)
            _link(file, destination / file.relative_to(prefix))
    return destination / program.relative_to(prefix)


def _install(site: Path, extras: Sequence[str]) -> None:
    """What `pip install mlcbuild[…]` would put there: what it requires as it is installed here, and the project."""
    project = _link_distributions(site, extras)
    shutil.copytree(PROJECT / "mlcbuild", site / "mlcbuild", ignore=shutil.ignore_patterns("__pycache__"))
    information = site / f"mlcbuild-{project['version']}.dist-info"
    information.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: mlcbuild\nVersion: {project['version']}\n"
    (information / "METADATA").write_text(metadata, encoding="utf-8")
    files = sorted(path.relative_to(site).as_posix() for path in (site / "mlcbuild").rglob("*") if path.is_file())
    (information / "RECORD").write_text("".join(f"{file},,\n" for file in files), encoding="utf-8")


def _link_distributions(site: Path, extras: Sequence[str]) -> dict[str, Any]:
    """Put what the project requires with these extras into `site`. Returns the project's table of pyproject.toml."""
    project: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = [requirement for extra in extras for requirement in project["optional-dependencies"][extra]]
    for distribution in _required([*project["dependencies"], *optional]):
        for path in distribution.files or ():
            if ".." not in path.parts:
                _link(Path(str(distribution.locate_file(path))), site / path)
    return project


def _required(requirements: Iterable[str]) -> list[importlib.metadata.Distribution]:
    """The installed distributions that satisfy requirements, and what those require in turn."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(Requirement(text), "") for text in requirements]
    seen = set[tuple[str, str]]()
    while waiting:
        requirement, of_extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": of_extra}):
            continue
        distribution = importlib.metadata.distribution(requirement.name)
        found[requirement.name] = distribution
        for extra in {"", *requirement.extras}:
            if (requirement.name, extra) not in seen:
                seen.add((requirement.name, extra))
                waiting += [(Requirement(text), extra) for text in distribution.requires or ()]
    return list(found.values())


def _link(source: Path, destination: Path) -> None:
    """A second name of a file, or a copy on another file system; links are followed."""
    # Byte code may have gone since it was listed, and two distributions may list one file.
    if not source.is_file() or destination.exists():
        return
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), destination)
    except OSError:
        shutil.copy2(source, destination)


def _other_clock(folder: Path, seconds: int) -> Path:
    library = folder / "clock.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", f"-DSECONDS={seconds}", "-o", str(library), "-x", "c", "-"],
        input=_CLOCK.encode(),
        check=True,
    )
    library.chmod(library.stat().st_mode | stat.S_IROTH | stat.S_IXOTH)
    return library


def _can_run(python: Path, user: int) -> bool:
    """Whether another user's processes can be started, and can reach the interpreter."""
    try:
        done = subprocess.run(
            [str(python), "-c", "import tvm_ffi"],
            cwd="/",
            env={},
            user=user,
            group=user,
            extra_groups=[],
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0
