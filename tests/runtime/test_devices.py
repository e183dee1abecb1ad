"""A library says itself which device it is for."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import tvm

from mlcbuild.compiler import library_image
from mlcbuild.compiler.library_image import ImageModule
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.runtime.devices import CPU, DEVICES, device_of, kind_of


def _library(path: Path, *kinds: str) -> Path:
    modules = [
        ImageModule(kind=library_image.EXECUTABLE, data=b"\x7fcuda"),
        ImageModule(kind=library_image.NATIVE_CODE),
    ]
    modules += [ImageModule(kind=kind, data=b"code") for kind in kinds]
    path.write_bytes(b"\x7fELF" + library_image.write(modules))
    return path


@pytest.mark.parametrize("kind", DEVICES)
def test_modules_for_a_device_tell_its_kind(tmp_path: Path, kind: str) -> None:
    assert kind_of(_library(tmp_path / "lib.so", kind, kind)) == kind


def test_a_library_without_such_modules_is_for_the_processor(tmp_path: Path) -> None:
    assert kind_of(_library(tmp_path / "lib.so")) == CPU
    assert device_of(CPU, tvm) == tvm.cpu()


def test_a_gpu_without_a_driver_is_the_machines_fault() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(LocalEnvironmentError, match="this machine has no driver for one"):
            device_of("cuda", tvm)
    else:
        pytest.skip("this machine has a driver")
