"""TVM's runtime, without its compiler, and the few functions of it that generation needs.

`TVM_USE_RUNTIME_LIB` makes `import tvm` load the runtime alone. Where torch is installed, tvm-ffi imports it
to exchange tensors, which takes seconds and serves nothing here: it is hidden while tvm is imported.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.runtime.devices import PAGE_LOCKED, device_of, kind_of
from mlcbuild.runtime.page_locked import PageLockedCopies
from mlcbuild.runtime.threads import set_threads


def import_tvm() -> Any:
    """The module tvm: the one already imported, or its runtime. Raises LocalEnvironmentError where it
    fails."""
    if "tvm" in sys.modules:
        return sys.modules["tvm"]
    with _environment("TVM_USE_RUNTIME_LIB", "1"), _hidden("torch"):
        try:
            return importlib.import_module("tvm")
        except (ImportError, OSError, RuntimeError) as error:
            raise LocalEnvironmentError(f"TVM's runtime does not load: {error}") from error


class Machine:
    """A library in TVM's virtual machine, on the CPU or the first GPU, as it was built for.

    Raises UsageError for a library that does not load, LocalEnvironmentError where the machine lacks what it runs on.
    """

    _copies: PageLockedCopies | None = None

    def __init__(self, library: Path, *, threads: int = 0) -> None:
        tvm = import_tvm()
        self._runtime = tvm.runtime
        self._ffi = importlib.import_module("tvm_ffi")
        set_threads(threads)
        kind = _kind(library)
        self.device = device_of(kind, tvm)
        if kind in PAGE_LOCKED:
            self._copies = PageLockedCopies(tvm, self.device, host=PAGE_LOCKED[kind])
        try:
            with _utf_8_path(library) as path:
                module = tvm.runtime.load_module(path)
            virtual_machine = importlib.import_module("tvm.runtime.vm").VirtualMachine
            self._machine = virtual_machine(module, self.device)
        except Exception as error:  # whatever the foreign loader raises
            raise UsageError(
                f"{library} cannot be loaded: {str(error).strip().splitlines()[-1]}",
                advice=("build it for this machine's kind of processor, with this version of TVM",),
            ) from error

    def entry(self, name: str) -> Any:
        """A function of the library. Raises UsageError where it has none of that name."""
        try:
            return self._machine[name]
        except Exception as error:  # TVM raises AttributeError or RuntimeError, by version
            raise UsageError(f"the library has no function {name}") from error

    def function(self, name: str) -> Any:
        """A function of TVM's runtime."""
        return self._ffi.get_global_func(name)

    def tell_of_calls(self, hear: Callable[[str, bool, tuple[Any, ...]], int] | None) -> None:
        """Have `hear` called before (True) and after each call that the library makes, with the function's name and
        arguments; None: no longer. It returns what TVM's `VMInstrumentReturnKind` names."""

        def instrument(_function: Any, name: str, before: bool, _result: Any, *arguments: Any) -> int:
            return 0 if hear is None else hear(name, before, arguments)

        self._machine.set_instrument(self._ffi.convert(instrument))

    def tensor(self, numbers: Any) -> Any:
        """A copy on the device."""
        return self._runtime.tensor(numbers, self.device)

    def numpy(self, tensor: Any) -> npt.NDArray[Any]:
        """A copy in host memory of a float32 tensor. It does not own its memory where that is page-locked."""
        return np.asarray(tensor.numpy()) if self._copies is None else self._copies.numpy(tensor)

    def shape(self, *sizes: int) -> Any:
        return self._ffi.Shape(list(sizes))

    def array(self, items: Sequence[Any]) -> Any:
        """A sequence as the library takes it, made once: building one costs as many steps as it has items."""
        return self._ffi.convert(list(items))


@contextlib.contextmanager
def _utf_8_path(file: Path) -> Iterator[str]:
    """A path to a file that TVM takes: a copy's, for the time of the block, if its own is not UTF-8."""
    try:
        str(file).encode()
    except UnicodeEncodeError:
        with tempfile.TemporaryDirectory(prefix="mlcbuild-") as folder:
            # A link does not help: TVM follows it.
            yield shutil.copyfile(file, str(Path(folder) / f"library{file.suffix}"))
    else:
        yield str(file)


def _kind(library: Path) -> str:
    try:
        return kind_of(library)
    except (OSError, ValueError) as error:
        raise UsageError(f"{library} cannot be read: {error}", advice=("build it again",)) from error


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextlib.contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Let imports of a module fail as if it were not installed, unless it is imported already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
