"""One measurement in a process of its own, which may crash or hang: that costs this measurement and nothing else.

The process is a fork, so TVM's runtime need not be loaded again; the device is first used in the child.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mlcbuild.runtime.devices import CPU, kind_of
from mlcbuild.runtime.machine import import_tvm
from mlcbuild.runtime.measuring import measurement as forms
from mlcbuild.runtime.measuring.candidate_list import Argument
from mlcbuild.runtime.measuring.device import measuring_device
from mlcbuild.runtime.measuring.measurement import Measurement
from mlcbuild.runtime.measuring.timing import time_candidate

_CHUNK_BYTES = 1 << 16


def measure(
    candidate: Path,
    untuned: Path,
    *,
    kernel: str,
    arguments: Sequence[Argument],
    sizes: Mapping[str, int],
    seconds: float,
    threads: int = 0,
) -> Measurement:
    """`seconds` is the longest that the measurement may take. Never raises for what the candidate does."""
    import_tvm()  # in the parent, once for all children

    def timed() -> Measurement:
        return time_candidate(candidate, untuned, kernel=kernel, arguments=arguments, sizes=sizes, threads=threads)

    outcome, answer = _in_child(timed, seconds)
    if outcome == forms.MEASURED:
        with contextlib.suppress(ValueError):
            (found,) = forms.from_json(answer)
            return found
        outcome, answer = forms.CRASHED, b"it ended without an answer"
    message = answer.decode("utf-8", "replace").strip()
    # The device is not asked: CUDA's driver must first be used in a child.
    kind = kind_of(untuned)
    described = measuring_device(kind, threads=threads) if kind == CPU else forms.MeasuringDevice(name=kind)
    return Measurement(outcome=outcome, device=described, sizes=sizes, message=message)


def _in_child(timed: Callable[[], Measurement], seconds: float) -> tuple[str, bytes]:
    """The outcome and what the child wrote: its measurement, or why there is none."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            os.setpgid(0, 0)
            try:
                answer, code = forms.to_json([timed()]).encode(), 0
            except BaseException as error:
                answer = f"{type(error).__name__}: {error}".encode()[:2000]
            with os.fdopen(writing, "wb") as stream:
                stream.write(answer)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)  # nothing of the parent's is cleaned up here
    os.close(writing)
    try:
        answer, in_time = _read_all(reading, time.monotonic() + seconds)
        if not in_time:
            return forms.TIMED_OUT, f"it took more than {seconds:g} s".encode()
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and not answer:
        number = os.WTERMSIG(status)
        return forms.CRASHED, f"it was killed by {signal.Signals(number).name}".encode()
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0
    return (forms.CRASHED if code else forms.MEASURED), answer


def _read_all(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    """All bytes until the other end closes, and whether that was before the deadline."""
    pieces: list[bytes] = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return b"", False
        piece = os.read(descriptor, _CHUNK_BYTES)
        if not piece:
            return b"".join(pieces), True
        pieces.append(piece)
