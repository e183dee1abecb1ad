"""The standard streams of a command, which may be closed, full, or without a reader.

Messages are for people: where they cannot be written they are dropped, and the command goes on. Results are not: a
command whose results cannot be written says so, and fails unless it has failed already. A reader of results that leaves
(`| head`) ends a command quietly. A stream that is closed when the command starts is one that nobody reads.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from mlcbuild.errors import readable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Error handlers of encoding: what stands for a byte of a name that is not UTF-8.
_READABLE = "mlcbuild.readable"  # `\\xff`, for people
_BYTES = "mlcbuild.bytes"  # the byte itself, for programs
# Signs of our own messages, for terminals that have none of them.
_PLAIN_SIGNS = str.maketrans(
    {"×": "x", "·": ".", "…": "~", "→": "->", "⇄": "<->", "│": "|", "─": "-", "├": "|", "└": "`", "«": '"', "»": '"'}
)
_RESULT_BUFFER = 1 << 20  # bytes; results of less are written when the command has ended, and its exit code is known


class ReaderLeftError(Exception):
    """The reader of standard output has left. It is no OSError, so that none is taken for it, and nobody handles it."""


class _Stream(io.FileIO):
    """A standard descriptor. It waits where the descriptor is non-blocking, as a terminal's may be."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._dropping = False

    def write(self, data: ReadableBuffer, /) -> int:
        if not self._dropping:
            try:
                return self._written(data)
            except OSError as error:
                self._dropping = True
                self.failed(error)
        return memoryview(data).nbytes

    def failed(self, error: OSError) -> None:
        """Called once; from then on all is dropped."""

    def _written(self, data: ReadableBuffer) -> int:
        while (count := cast("int | None", super().write(data))) is None:
            import select

            waiting = select.poll()
            waiting.register(self.fileno(), select.POLLOUT)
            waiting.poll()
        return count


class _Results(_Stream):
    failure: OSError | None = None  # why results are missing; None also if their reader has left

    def failed(self, error: OSError) -> None:
        if error.errno == errno.EPIPE:
            raise ReaderLeftError from None
        self.failure = OSError(error.errno, error.strerror, "standard output")
        raise self.failure from None


def open_standard_streams() -> None:
    """Replace Python's `sys.stdout` and `sys.stderr`. Streams that a caller of `main` has put there are kept."""
    codecs.register_error(_READABLE, _readable_characters)
    codecs.register_error(_BYTES, _bytes_of_characters)
    for descriptor in range(3):
        _open_if_closed(descriptor)
    if _is_pythons(sys.stdout, sys.__stdout__):
        results = _Results(_descriptor(sys.stdout, 1))
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(results, _RESULT_BUFFER),
            encoding=_encoding(sys.stdout),
            errors=_READABLE if results.isatty() else _BYTES,
            line_buffering=results.isatty(),
        )
    if _is_pythons(sys.stderr, sys.__stderr__):
        messages = _Stream(_descriptor(sys.stderr, 2))
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(messages), encoding=_encoding(sys.stderr), errors=_READABLE, line_buffering=True
        )


def failure_of_results() -> OSError | None:
    """Write what is left, and return why results could not be written; None if they were, or their reader has left."""
    stream = sys.stdout
    try:
        stream.flush()
    except ReaderLeftError:
        return None
    except OSError as error:
        return error
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, _Results) else None


def _open_if_closed(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        # Otherwise the next file that is opened gets this number, and whatever is printed would be written into it.
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)
        os.set_inheritable(descriptor, True)


def _is_pythons(stream: TextIO | None, original: TextIO | None) -> bool:
    if stream is None or stream is original:
        return True
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=_READABLE)
    return False


def _descriptor(stream: TextIO | None, number: int) -> int:
    """Where to write; `/dev/null` if Python found the stream closed, and something else has taken its number."""
    if stream is not None:
        return stream.fileno()
    is_nothing = os.path.samestat(os.fstat(number), Path(os.devnull).stat())
    return number if is_nothing else os.open(os.devnull, os.O_WRONLY)


def _encoding(stream: TextIO | None) -> str:
    return "utf-8" if stream is None else stream.encoding


def _readable_characters(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = readable(error.object[error.start : error.end]).translate(_PLAIN_SIGNS)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


def _bytes_of_characters(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    characters = error.object[error.start : error.end]
    encoded = (
        bytes((ord(character) - 0xDC00,))
        if 0xDC80 <= ord(character) <= 0xDCFF
        else character.encode("ascii", "backslashreplace")
        for character in characters
    )
    return b"".join(encoded), error.end
