"""The forms that TVM's runtime reads, written here: what is read is what was written, and what TVM would write."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path

import pytest
import tvm
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.compiler import elf_object, library_image
from mlcbuild.compiler.backends.cuda import device_functions
from mlcbuild.compiler.backends.cuda.device_functions import DeviceFunction
from mlcbuild.compiler.library_image import ImageModule
from mlcbuild.errors import StageError
from tests.compiler.pipeline import CPU_TARGET, finish_library
from tests.compiler.small_graph import write_small_graph

NAMES = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)
FUNCTIONS = st.builds(
    DeviceFunction,
    name=NAMES,
    argument_types=st.lists(
        st.tuples(
            st.sampled_from(["int", "uint", "float", "handle", "bfloat", "bool"]),
            st.integers(0, 255),
            st.integers(0, 65535),
        ),
        max_size=4,
    ).map(tuple),
    launch_parameters=st.lists(NAMES, max_size=4).map(tuple),
    argument_tags=st.lists(st.integers(0, 1), max_size=4).map(tuple),
)


@given(functions=st.lists(FUNCTIONS, max_size=3).map(tuple), code=st.binary(max_size=64))
def test_a_device_module_is_read_as_it_was_written(functions: tuple[DeviceFunction, ...], code: bytes) -> None:
    assert device_functions.from_module(device_functions.to_module(functions, code)) == ("cubin", functions, code)
    assert device_functions.from_json(device_functions.to_json(functions), where="x") == functions


@given(
    data=st.lists(
        st.tuples(st.sampled_from(["cuda", "_lib", "relax.VMExecutable"]), st.binary(max_size=20)), min_size=1
    ),
    draw=st.data(),
)
def test_an_image_is_read_as_it_was_written(data: list[tuple[str, bytes]], draw: st.DataObject) -> None:
    modules = tuple(
        ImageModule(
            kind=kind,
            data=b"" if kind == library_image.NATIVE_CODE else content,
            imports=tuple(draw.draw(st.lists(st.integers(0, len(data) - 1), max_size=3))),
        )
        for kind, content in data
    )
    image = library_image.write(modules)
    assert library_image.read(image) == modules
    with pytest.raises(ValueError, match="too early"):
        library_image.read(image[:-1])
    with pytest.raises(ValueError, match="left over"):
        library_image.read(image + b"\0")


def test_a_launch_with_an_unknown_type_is_refused() -> None:
    function = DeviceFunction(name="f", argument_types=(("float", 8, 1),), launch_parameters=(), argument_tags=())
    text = device_functions.to_json((function,)).replace('"float"', '"complex"')
    with pytest.raises(StageError, match="k is not a list of device functions: unknown type 'complex'"):
        device_functions.from_json(text, where="k")


def test_the_image_of_a_library_is_byte_for_byte_tvms(tmp_path: Path) -> None:
    write_small_graph(tmp_path)
    finish_library(CPU_TARGET, tmp_path)
    program = tvm_ffi.get_global_func("ffi.Module.load_from_file.relax.VMExecutable")(str(tmp_path / "executable.bin"))
    program.import_module(tvm.runtime.load_static_library(str(tmp_path / "shape_functions.o"), []))
    theirs = tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")(program).numpy().tobytes()
    assert theirs in (tmp_path / "lib.so").read_bytes()
    assert library_image.write(library_image.read(theirs)) == theirs


def test_linked_data_is_found_by_its_name_read_only_and_aligned(tmp_path: Path) -> None:
    data = bytes(range(256)) * 41
    (tmp_path / "data.o").write_bytes(elf_object.read_only_data("the_data", data, "x86_64"))
    library = tmp_path / "data.so"
    command = ["ld", "-shared", "-z", "noexecstack", "-o", str(library), str(tmp_path / "data.o")]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert finished.stderr == ""
    loaded = (ctypes.c_ubyte * len(data)).in_dll(ctypes.CDLL(str(library)), "the_data")
    assert bytes(loaded) == data
    address = ctypes.addressof(loaded)
    assert address % 64 == 0
    maps = Path("/proc/self/maps").read_text().splitlines()
    rights = [line.split()[1] for line in maps if int(line.split("-")[0], 16) <= address < _end(line)]
    assert rights == ["r--p"]


def _end(line: str) -> int:
    return int(line.partition("-")[2].split()[0], 16)


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_an_object_is_for_the_machine_asked_for(machine: str, number: int) -> None:
    assert struct.unpack_from("<HH", elf_object.read_only_data("x", b"data", machine), 16) == (1, number)
