"""CompileDevice and FatBinary: real compilers, in-process, that give the same bytes for the same text."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from mlcbuild.compiler.backends.cuda import source as texts
from mlcbuild.compiler.backends.cuda.stages import compile_device, compile_device_toolkit, fat_binary
from mlcbuild.errors import InternalError, LocalEnvironmentError, StageError

TEXT = """\
#include <cuda_fp16.h>
#include <mma.h>
extern "C" __global__ void twice(half* x) { x[threadIdx.x] = x[threadIdx.x] * __float2half_rn(2.0f); }
"""
_AGAIN = """
import sys
from pathlib import Path
from mlcbuild.compiler.backends.cuda.stages import compile_device
compile_device.run(source=Path(sys.argv[1]), cubin=Path(sys.argv[2]), arch="sm_90")
assert "tvm" not in sys.modules and "numpy" not in sys.modules
"""
TOOLKIT = Path("/usr/local/cuda")


def compiled(directory: Path, arch: str, text: str = TEXT) -> Path:
    source, cubin = directory / "twice.cu", directory / f"twice.{arch}.cubin"
    source.write_text(text)
    compile_device.run(source=source, cubin=cubin, arch=arch)
    return cubin


def architecture_of(cubin: bytes) -> int:
    """The compute capability in the flags of a cubin's ELF header, times ten."""
    assert cubin[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", cubin, 18) == (190,)  # EM_CUDA
    (flags,) = struct.unpack_from("<I", cubin, 48)
    return int(flags >> 8 & 0xFF)


@pytest.mark.parametrize(
    ("arch", "number"),
    [("sm_80", 80), ("sm_86", 86), ("sm_89", 89), ("sm_90", 90), ("sm_90a", 90), ("sm_100a", 100), ("sm_120", 120)],
)
def test_machine_code_is_for_the_architecture_asked_for(tmp_path: Path, arch: str, number: int) -> None:
    data = compiled(tmp_path, arch).read_bytes()
    assert architecture_of(data) == number
    assert b"twice" in data


def test_a_process_elsewhere_makes_the_same_bytes_without_tvm_and_names_no_directory(tmp_path: Path) -> None:
    here = compiled(tmp_path, "sm_90")
    elsewhere = tmp_path / "quite" / "elsewhere"
    elsewhere.mkdir(parents=True)
    (elsewhere / "renamed.cu").write_text(TEXT)
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    command = [sys.executable, "-c", _AGAIN, "renamed.cu", "other.cubin"]
    subprocess.run(command, cwd=elsewhere, env=environment, check=True)
    data = here.read_bytes()
    assert (elsewhere / "other.cubin").read_bytes() == data
    for path in (str(tmp_path), sys.prefix, "kernel.cu"):
        assert path.encode() not in data


def test_an_error_in_the_text_is_told_with_its_place_and_the_log(tmp_path: Path) -> None:
    with pytest.raises(StageError) as raised:
        compiled(tmp_path, "sm_90", TEXT.replace("half* x", "helf* x"))
    first, *log = str(raised.value).splitlines()
    assert first.startswith("the kernel's CUDA text does not compile for sm_90: kernel.cu(3): error:")
    assert any("detected in the compilation of" in line for line in log)


def test_an_unknown_architecture_is_told_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r'unknown GPU architecture "sm_9"\n  known: sm_75, .*did you mean "sm_9'):
        compiled(tmp_path, "sm_9")


def test_without_the_wheels_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcbuild.compiler.backends.cuda import nvrtc

    nvrtc._library.cache_clear()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(
        LocalEnvironmentError, match=r'not installed .*\n  run: python -m pip install "mlcbuild\[cuda\]"'
    ):
        compiled(tmp_path, "sm_90")


def test_only_the_head_of_tvms_text_is_replaced() -> None:
    head = "\n#ifdef __CUDACC_RTC__\n#include <cuda/std/type_traits>\n#else\n#include <cuda.h>\n#endif\n"
    body = '#ifdef __CUDACC_RTC__\n#else\n#endif\nextern "C" __global__ void k() {}\n'
    lean = texts.lean(head + body)
    assert lean.endswith(body)
    assert "cuda/std" not in lean
    with pytest.raises(InternalError, match="does not begin with the headers that TVM writes"):
        texts.lean(body)


def test_a_fat_binary_holds_each_cubin_and_nothing_of_where_it_was_made(tmp_path: Path) -> None:
    cubins = [compiled(tmp_path, arch) for arch in ("sm_90", "sm_80", "sm_100a")]
    (tmp_path / "deeper").mkdir()
    made = [tmp_path / "one.fatbin", tmp_path / "deeper" / "two.fatbin"]
    fat_binary.run(cubins=cubins, fat_binary=made[0])
    fat_binary.run(cubins=cubins[::-1], fat_binary=made[1])
    data = made[0].read_bytes()
    assert data == made[1].read_bytes()
    assert data[:4] == bytes.fromhex("50ed55ba")
    assert [cubin.read_bytes() in data for cubin in cubins] == [True] * 3
    assert str(tmp_path).encode() not in data


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("twice.sm_90.cubin", None, "the cubin for sm_90 is none: it is for another architecture"),
        ("twice.sm_90.cubin", b"text", "the cubin for sm_90 is none: it is not an ELF file"),
        ("twice.cubin", None, r"twice\.cubin does not name an architecture"),
    ],
)
def test_what_is_no_cubin_of_an_architecture_is_told(
    tmp_path: Path, name: str, content: bytes | None, told: str
) -> None:
    first = compiled(tmp_path, "sm_80")
    other = tmp_path / name
    other.write_bytes(first.read_bytes() if content is None else content)
    with pytest.raises(StageError, match=told):
        fat_binary.run(cubins=[first, other], fat_binary=tmp_path / "x.fatbin")


def test_a_toolkit_that_is_not_there_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(TEXT)
    with pytest.raises(LocalEnvironmentError, match=r"nvcc cannot be run: No such file"):
        compile_device_toolkit.run(
            source=tmp_path / "k.cu", cubin=tmp_path / "k.cubin", arch="sm_90", toolkit=str(tmp_path / "none")
        )


@pytest.mark.skipif(not (TOOLKIT / "bin" / "nvcc").exists(), reason="no CUDA toolkit is installed")
def test_a_toolkits_nvcc_compiles_the_same_text_and_names_no_directory(tmp_path: Path) -> None:
    made = []
    for directory in (tmp_path / "one", tmp_path / "another"):
        directory.mkdir()
        (directory / "k.cu").write_text(TEXT)
        cubin = directory / "k.cubin"
        compile_device_toolkit.run(source=directory / "k.cu", cubin=cubin, arch="sm_90", toolkit=str(TOOLKIT))
        made.append(cubin.read_bytes())
    assert made[0] == made[1]
    assert architecture_of(made[0]) == 90
    assert str(tmp_path).encode() not in made[0]
    (tmp_path / "bad.cu").write_text("void f() { return 1; }\n")
    with pytest.raises(StageError, match=r"does not compile for sm_90: kernel\.cu\(1\): error"):
        compile_device_toolkit.run(
            source=tmp_path / "bad.cu", cubin=tmp_path / "bad.cubin", arch="sm_90", toolkit=str(TOOLKIT)
        )
