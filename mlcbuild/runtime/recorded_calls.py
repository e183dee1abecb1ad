"""Calls of kernels that a GPU plays without its host: NVIDIA's graphs.

A launch takes a host microseconds, longer than many a kernel takes. A model's own calls are recorded too, so what is
played is timed as it runs in a model.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import TracebackType
from typing import Any

_DRIVER = "libcuda.so.1"
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: memory may be asked for meanwhile


class RecordedCalls:
    """Calls on a device, recorded when this is made. As a context it gives its memory back at the end.

    Raises RuntimeError where they cannot be recorded; the device can be used as before then. All that they call must
    have been called before, so that its code is on the device.
    """

    def __init__(self, device: Any, calls: Callable[[], object]) -> None:
        self._driver = ctypes.CDLL(_DRIVER)
        self._stream = ctypes.c_void_p()
        self._graph, self._playable = ctypes.c_void_p(), ctypes.c_void_p()
        device.sync()
        self._ask("cuStreamCreate", ctypes.byref(self._stream), ctypes.c_uint(_NON_BLOCKING))
        try:
            self._record(device, calls)
            self._ask("cuGraphInstantiateWithFlags", ctypes.byref(self._playable), self._graph, ctypes.c_ulonglong(0))
        except BaseException:
            self._close()
            raise

    def _record(self, device: Any, calls: Callable[[], object]) -> None:
        self._ask("cuStreamBeginCapture_v2", self._stream, ctypes.c_int(_RELAXED))
        device.set_raw_stream(self._stream.value)
        try:
            calls()
        except BaseException:
            self._driver.cuStreamEndCapture(self._stream, ctypes.byref(self._graph))
            raise
        finally:
            device.set_raw_stream(0)
        self._ask("cuStreamEndCapture", self._stream, ctypes.byref(self._graph))

    def play(self) -> None:
        """Make the calls, and wait until the last has ended."""
        self._ask("cuGraphLaunch", self._playable, self._stream)
        self._ask("cuStreamSynchronize", self._stream)

    def __enter__(self) -> RecordedCalls:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._playable:
            self._driver.cuGraphExecDestroy(self._playable)
        if self._graph:
            self._driver.cuGraphDestroy(self._graph)
        self._driver.cuStreamDestroy_v2(self._stream)

    def _ask(self, function: str, *arguments: Any) -> None:
        code = getattr(self._driver, function)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{function}: {(text.value or b'?').decode()} ({code})")
