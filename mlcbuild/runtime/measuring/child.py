"""Measurements in a process of their own, which may crash or hang: that costs one candidate and nothing else.

The process is a fork, so TVM's runtime need not be loaded again; the device is first used in the child. One child
measures candidates one after the other, so the device is set up and its tensors are made once. After one that fails,
whatever the reason, another child goes on: nothing is measured where something has gone wrong.

What fails before the first candidate is loaded is the fault of the machine, or of the kernel with its default shape; a
lack of memory is the machine's at any time. It is no measurement, since it would stand for ever for what the candidate
did.
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

from mlcbuild.errors import LocalEnvironmentError, MlcbuildError, StageError
from mlcbuild.runtime.devices import CPU, kind_of
from mlcbuild.runtime.machine import import_tvm
from mlcbuild.runtime.measuring import measurement as forms
from mlcbuild.runtime.measuring.candidate_list import Argument
from mlcbuild.runtime.measuring.device import measuring_device
from mlcbuild.runtime.measuring.measurement import Measurement
from mlcbuild.runtime.measuring.timing import CandidateTimer

_CHUNK_BYTES = 1 << 16
_MACHINES = "machine"  # whose fault it is
# What drivers, loaders and allocators say, in their own kinds of errors, of a machine that has no memory left.
_NO_MEMORY = ("out of memory", "out_of_memory", "cannot allocate memory", "bad_alloc")
_MORE_MEMORY = "measure where more memory is free"
_UNTUNED = "the kernel with its default shape cannot be measured here"


def measure(
    candidates: Sequence[Path],
    untuned: Path,
    *,
    kernel: str,
    arguments: Sequence[Argument],
    sizes: Sequence[Mapping[str, int]],
    seconds: float,
    threads: int = 0,
) -> Iterator[tuple[Measurement, ...] | LocalEnvironmentError]:
    """What came of each candidate, in order: a measurement for each of `sizes`, up to the first that failed; or the
    error of the machine, which had no memory for this one. `seconds` is the longest that one may take. Never raises for
    what a candidate does.

    Raises, in place of an answer, what is true of all candidates: LocalEnvironmentError where the machine has not what
    the kernel needs, StageError where the kernel with its default shape cannot be called.
    """
    import_tvm()  # in the parent, once for all children
    left = list(candidates)

    def prepare() -> Iterator[Measurement]:
        timer = CandidateTimer(untuned, kernel=kernel, arguments=arguments, threads=threads)
        timer.prepare(sizes)
        return measurements(timer)

    def measurements(timer: CandidateTimer) -> Iterator[Measurement]:
        for candidate in left:
            for each in sizes:
                yield (found := timer.time(candidate, each))
                if found.outcome != forms.MEASURED:
                    return

    while left:
        done: list[Measurement] = []
        fault: LocalEnvironmentError | None = None
        with contextlib.closing(_in_child(prepare, seconds)) as answers:
            for outcome, text in answers:
                if outcome == _MACHINES:
                    fault = LocalEnvironmentError(text.decode("utf-8", "replace"), advice=(_MORE_MEMORY,))
                    break
                found = _read(outcome, text, untuned, sizes[len(done)], threads)
                done.append(found)
                if found.outcome != forms.MEASURED:
                    break
                if len(done) == len(sizes):
                    yield tuple(done)
                    done = []
                    left.pop(0)
        if left and fault is not None:
            yield fault
            left.pop(0)
        elif left:
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


def _in_child(prepare: Callable[[], Iterator[Measurement]], seconds: float) -> Generator[tuple[str, bytes], None, None]:
    """For each measurement MEASURED and its line, as they are made; last another outcome and why, if the child did not
    end as it should, or the machine had no memory for a candidate. It is ended with the generator. Raises
    LocalEnvironmentError or StageError where it cannot prepare."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(prepare, reading, writing)
    os.close(writing)
    status: int | None = None
    try:
        lines = _Lines(reading)
        is_prepared = False
        while (line := lines.next(time.monotonic() + seconds)) is not None:
            if line.startswith(b"{"):
                yield forms.MEASURED, line
            elif line.startswith(b"["):
                fault = _fault(*json.loads(line))
                if not is_prepared:
                    raise fault
                yield _MACHINES, fault.message.encode()
                return
            elif line.startswith(b'"'):
                yield forms.CRASHED, json.loads(line).encode()
                return
            else:
                is_prepared = True
        if lines.ended:
            _, status = os.waitpid(child, 0)
            outcome, why = forms.CRASHED, _ending(status)
        else:
            outcome, why = forms.TIMED_OUT, f"it took more than {seconds:g} s"
        if status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            why = f"a measurement cannot be made here: {why}, as the kernel does without memory"
            if not is_prepared:
                raise LocalEnvironmentError(why, advice=(_MORE_MEMORY,))
            outcome = _MACHINES
        if not is_prepared:
            raise _fault("", f"{_UNTUNED}: {why}", [])
        if why:
            yield outcome, why.encode()
    finally:
        os.close(reading)
        if status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _ending(status: int) -> str:
    """Why a process ended that gave no answer, "" where all is well."""
    if os.WIFSIGNALED(status):
        return f"it was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    code = os.WEXITSTATUS(status)
    return f"it ended with code {code} and without an answer" if code else ""


def _fault(kind: str, message: str, advice: Sequence[str]) -> MlcbuildError:
    """The error of a child that no candidate is to blame for."""
    return (LocalEnvironmentError if kind == _MACHINES else StageError)(message, advice=tuple(advice))


def _fault_line(error: BaseException) -> bytes:
    """What `_fault` takes, as JSON."""
    if isinstance(error, LocalEnvironmentError):
        fault = [_MACHINES, error.message, list(error.advice)]
    else:
        fault = (
            [_MACHINES, f"{_UNTUNED}: {_told(error)}", [_MORE_MEMORY]]
            if _lacks_memory(error)
            else ["", f"{_UNTUNED}: {_told(error)}", []]
        )
    return json.dumps(fault).encode() + b"\n"


def _answer(prepare: Callable[[], Iterator[Measurement]], reading: int, writing: int) -> None:
    """The child: writes `true` once it is prepared, a line for each measurement, and a JSON string for an error of a
    candidate; a list for one that is none's. Does not return."""
    code = 1
    try:
        os.close(reading)
        os.setpgid(0, 0)
        with os.fdopen(writing, "wb", buffering=0) as stream:
            line_of = _fault_line
            try:
                measurements = prepare()
                stream.write(b"true\n")
                line_of = _error_line
                for each in measurements:
                    stream.write(forms.to_json([each]).encode())
                code = 0
            except BaseException as error:
                stream.write(line_of(error))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)  # nothing of the parent's is cleaned up here


def _error_line(error: BaseException) -> bytes:
    """Of one that a candidate's turn has raised."""
    fault = [_MACHINES, f"a measurement cannot be made here: {_told(error)}", [_MORE_MEMORY]]
    return json.dumps(fault if _lacks_memory(error) else _told(error)).encode() + b"\n"


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


def _lacks_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or any(word in str(error).lower() for word in _NO_MEMORY)


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
