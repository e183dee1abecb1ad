"""One measurement at a time on a machine, whoever measures there: `tune`, `compare`, and actions that run alone."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mlcbuild.cache.disk import default_root
from mlcbuild.engine.action import MORE_CPUS_THAN_ANY, ExecutionRequirements
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.regular_files import open_regular

_POLL_SECONDS = 0.2
_held: dict[Path, int] = {}  # how many in this process hold a lock, by its path
_changing = threading.Lock()


@contextmanager
def alone_on_machine(
    requirements: ExecutionRequirements, *, waits: Callable[[str], object], is_given_up: Callable[[], bool]
) -> Iterator[None]:
    """Hold this machine's lock for an action that is to run alone, and none for others."""
    if requirements.cpus < MORE_CPUS_THAN_ANY:
        yield
        return
    with measuring_here(waits=waits, is_given_up=is_given_up):
        yield


@contextmanager
def measuring_here(
    *, waits: Callable[[str], object], is_given_up: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Hold the lock of this machine's devices, which lies in the user's cache folder for every disk cache. Else as
    `measuring_in`."""
    with measuring_in(default_root() / "tuning", waits=waits, is_given_up=is_given_up):
        yield


@contextmanager
def measuring_in(
    folder: Path, *, waits: Callable[[str], object], is_given_up: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Hold the lock of a folder of measurements, which machines may share. What already holds it in this process shares
    it: `tune` holds it for all its rounds, whose actions would take it as well. The kernel frees it when the process
    ends. One that waits looks whether `is_given_up`, and goes on without the lock. Raises LocalEnvironmentError where
    it cannot be opened or taken."""
    path = folder / "measuring.lock"
    with _changing:
        if path in _held:
            _held[path] += 1
            descriptor = None
        else:
            descriptor = _opened(path)
    if descriptor is None:
        try:
            yield
        finally:
            _release(path)
        return
    try:
        if not _take(descriptor, path, waits, is_given_up):
            yield
            return
        with _changing:
            _held[path] = _held.get(path, 0) + 1
        try:
            yield
        finally:
            _release(path)
    finally:
        os.close(descriptor)


def _release(path: Path) -> None:
    with _changing:
        _held[path] -= 1
        if not _held[path]:
            del _held[path]


def _opened(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise LocalEnvironmentError(
            f"the lock {path} cannot be opened: {error.strerror or error}",
            advice=("check the owner and mode of that path",),
        ) from error


def _take(descriptor: int, path: Path, waits: Callable[[str], object], is_given_up: Callable[[], bool]) -> bool:
    """False where it was given up."""
    is_told = False
    while not is_given_up():
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise LocalEnvironmentError(
                    f"the lock {path} cannot be taken: {error.strerror or error}",
                    advice=("is that folder on a file system without locks?",),
                ) from error
        if not is_told:
            waits("waiting for another process that measures on this machine")
            is_told = True
        time.sleep(_POLL_SECONDS)
    return False
