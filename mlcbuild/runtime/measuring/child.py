"""Measurements in a process of their own, which may crash or hang: that costs one candidate and nothing else.

The process is a fork, so TVM's runtime need not be loaded again; the device is first used in the child. One child
measures candidates one after the other, so the device is set up and its tensors are made once. After one that fails,
whatever the reason, another child goes on: nothing is measured where something has gone wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path

from mlcbuild.runtime.devices import CPU, kind_of
from mlcbuild.runtime.machine import import_tvm
from mlcbuild.runtime.measuring import measurement as forms
from mlcbuild.runtime.measuring.candidate_list import Argument
from mlcbuild.runtime.measuring.device import measuring_device
from mlcbuild.runtime.measuring.measurement import Measurement
from mlcbuild.runtime.measuring.timing import CandidateTimer

_CHUNK_BYTES = 1 << 16


def measure(
    candidates: Sequence[Path],
    untuned: Path,
    *,
    kernel: str,
    arguments: Sequence[Argument],
    sizes: Sequence[Mapping[str, int]],
    seconds: float,
    threads: int = 0,
) -> Iterator[tuple[Measurement, ...]]:
    """What came of each candidate, in order: a measurement for each of `sizes`, up to the first that failed. `seconds`
    is the longest that one may take. Never raises for what a candidate does."""
    import_tvm()  # in the parent, once for all children
    left = list(candidates)

    def measurements() -> Iterator[Measurement]:
        timer = CandidateTimer(untuned, kernel=kernel, arguments=arguments, threads=threads)
        for candidate in left:
            for each in sizes:
                yield (found := timer.time(candidate, each))
                if found.outcome != forms.MEASURED:
                    return

    while left:
        done: list[Measurement] = []
        with contextlib.closing(_in_child(measurements, seconds)) as answers:
            for outcome, text in answers:
                found = _read(outcome, text, untuned, sizes[len(done)], threads)
                done.append(found)
                if found.outcome != forms.MEASURED:
                    break
                if len(done) == len(sizes):
                    yield tuple(done)
                    done = []
                    left.pop(0)
        if left:
            if not done or done[-1].outcome == forms.MEASURED:
                done.append(_read(forms.CRASHED, b"it ended without an answer", untuned, sizes[len(done)], threads))
            yield tuple(done)
            left.pop(0)


def _read(outcome: str, text: bytes, untuned: Path, sizes: Mapping[str, int], threads: int) -> Measurement:
    """The measurement that a child wrote, or that it wrote none."""
    if outcome == forms.MEASURED:
        with contextlib.suppress(ValueError):
            (found,) = forms.from_json(text)
            return found
        outcome, text = forms.CRASHED, b"it ended without an answer"
    # The device is not asked: CUDA's driver must first be used in a child.
    kind = kind_of(untuned)
    described = measuring_device(kind, threads=threads) if kind == CPU else forms.MeasuringDevice(name=kind)
    message = text.decode("utf-8", "replace").strip()
    return Measurement(outcome=outcome, device=described, sizes=sizes, message=message)


def _in_child(
    measurements: Callable[[], Iterator[Measurement]], seconds: float
) -> Generator[tuple[str, bytes], None, None]:
    """For each measurement MEASURED and its line, as they are made; last another outcome and why, if the child did not
    end as it should. It is ended with the generator."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(measurements, reading, writing)
    os.close(writing)
    reaped = False
    try:
        lines = _Lines(reading)
        while (line := lines.next(time.monotonic() + seconds)) is not None:
            if line.startswith(b"{"):
                yield forms.MEASURED, line
            else:
                yield forms.CRASHED, json.loads(line).encode()
                return
        if not lines.ended:
            yield forms.TIMED_OUT, f"it took more than {seconds:g} s".encode()
            return
        _, status = os.waitpid(child, 0)
        reaped = True
        if os.WIFSIGNALED(status):
            yield forms.CRASHED, f"it was killed by {signal.Signals(os.WTERMSIG(status)).name}".encode()
        elif code := os.WEXITSTATUS(status):
            yield forms.CRASHED, f"it ended with code {code} and without an answer".encode()
    finally:
        os.close(reading)
        if not reaped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _answer(measurements: Callable[[], Iterator[Measurement]], reading: int, writing: int) -> None:
    """The child: writes a line for each measurement, and a JSON string for an error. Does not return."""
    code = 1
    try:
        os.close(reading)
        os.setpgid(0, 0)
        with os.fdopen(writing, "wb", buffering=0) as stream:
            try:
                for each in measurements():
                    stream.write(forms.to_json([each]).encode())
                code = 0
            except BaseException as error:
                stream.write(json.dumps(f"{type(error).__name__}: {error}"[:2000]).encode() + b"\n")
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)  # nothing of the parent's is cleaned up here


class _Lines:
    """Whole lines of a pipe. `ended` is whether its other end has closed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._data = b""
        self.ended = False

    def next(self, deadline: float) -> bytes | None:
        """None at the end, and where none came before the deadline."""
        while b"\n" not in self._data:
            left = deadline - time.monotonic()
            ready = select.select([self._descriptor], [], [], max(left, 0))[0] if left > 0 else []
            if not ready:
                return None
            piece = os.read(self._descriptor, _CHUNK_BYTES)
            if not piece:
                self.ended = True
                return None
            self._data += piece
        line, _, self._data = self._data.partition(b"\n")
        return line
