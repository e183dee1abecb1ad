"""The fingerprint of a toolchain is made from its content, and a missing one is reported before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.errors import BuildError, LocalEnvironmentError
from mlcbuild.toolchains.entries.gxx import folders_of
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.programs import needed_libraries
from mlcbuild.toolchains.table import Toolchains, every
from tests.engine.installed_wheels import install

WITHOUT_PATH = [toolchain.name for toolchain in every() if not toolchain.takes_path]


def install_tvm(site: Path, tvm: str = "0.27.0.post1", ffi: str = "0.1.14.post1") -> Toolchains:
    install(site, "apache_tvm", tvm, {"tvm/__init__.py": b""})
    install(site, "apache_tvm_ffi", ffi, {"tvm_ffi/__init__.py": b""})
    return Toolchains(search_path=[str(site)])


def test_tvm_is_both_its_distributions(tmp_path: Path) -> None:
    found = {
        install_tvm(tmp_path / "a").fingerprint("tvm"),
        install_tvm(tmp_path / "b", ffi="0.1.14.post0").fingerprint("tvm"),
        install_tvm(tmp_path / "c", tvm="0.27.0").fingerprint("tvm"),
    }
    assert len(found) == 3


@pytest.mark.parametrize("version", ["0.1.14", "0.1.14.post0", "0.1.14.post1"])
def test_a_tvm_ffi_that_works_is_accepted(tmp_path: Path, version: str) -> None:
    install_tvm(tmp_path, ffi=version).check(["tvm"])


@pytest.mark.parametrize("version", ["0.1.15", "0.1.15.post2", "0.1.140", "0.2.0"])
def test_a_tvm_ffi_that_crashes_is_refused_with_the_remedy(tmp_path: Path, version: str) -> None:
    with pytest.raises(LocalEnvironmentError) as caught:
        install_tvm(tmp_path, ffi=version).check(["tvm"])
    assert f"apache-tvm-ffi {version} is installed" in str(caught.value)
    assert 'python -m pip install "apache-tvm-ffi==0.1.14.post1"' in str(caught.value)


def test_a_missing_tvm_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocalEnvironmentError, match="compiling models needs apache-tvm, which is not installed"):
        Toolchains(search_path=[str(tmp_path)]).check(["tvm"])


def test_a_program_counts_by_the_file_that_its_links_lead_to(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tmp_path / "real-ld").write_bytes(b"linker 1")
    (tools / "ld").symlink_to("../real-ld")
    memory = tmp_path / "memory.json"

    def fingerprint() -> str:
        toolchains = Toolchains(memory, program_folders=[str(tmp_path / "nothing"), str(tools)])
        found = toolchains.fingerprint("ld")
        toolchains.save()
        return found

    before = fingerprint()
    assert fingerprint() == before
    (tmp_path / "real-ld").write_bytes(b"linker 2")
    assert fingerprint() != before


def test_the_users_path_does_not_choose_the_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Toolchains().fingerprint("ld")
    (tmp_path / "ld").write_text("#!/bin/sh\n")
    (tmp_path / "ld").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Toolchains().fingerprint("ld") == before


def test_a_missing_program_is_told_with_the_remedy(tmp_path: Path) -> None:
    toolchains = Toolchains(program_folders=[str(tmp_path)])
    for ask in (toolchains.check, toolchains.fingerprints):
        with pytest.raises(LocalEnvironmentError, match="install binutils") as caught:
            ask(["ld"])
        assert f"there is no program 'ld' in {tmp_path}" in str(caught.value)
    assert toolchains.version("ld") == ""


def test_libraries_are_read_from_a_program_itself() -> None:
    program = Path(sys.executable).resolve()
    listed = subprocess.run(["readelf", "-d", str(program)], capture_output=True, text=True, check=False).stdout
    expected = [line.split("[")[1].rstrip("]").encode() for line in listed.splitlines() if "(NEEDED)" in line]
    assert list(needed_libraries(program.read_bytes())) == expected
    assert expected


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 100])
def test_what_is_no_program_needs_no_libraries(data: bytes) -> None:
    assert needed_libraries(data) == ()


def test_named_toolchains_of_this_machine_have_fingerprints() -> None:
    found = Toolchains().fingerprints([*WITHOUT_PATH, "tvm"])
    assert list(found) == WITHOUT_PATH
    assert all(len(fingerprint) == 64 for fingerprint in found.values())
    assert len(set(found.values())) == len(WITHOUT_PATH)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nvfatbim", 'unknown toolchain "nvfatbim"\n  known: .*did you mean "nvfatbin"'),
        ("tvm:/opt/tvm", 'the toolchain "tvm:/opt/tvm" takes no path\n  write tvm$'),
        ("program", 'the toolchain "program" needs a path\n  write program:PATH$'),
    ],
)
def test_a_name_that_stands_for_no_toolchain_is_refused_before_a_build(name: str, message: str) -> None:
    for ask in (Toolchains().check, Toolchains().fingerprints):
        with pytest.raises(BuildError, match=message):
            ask([name])


def test_fingerprints_are_taken_without_importing_what_they_are_of(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from mlcbuild.toolchains.table import Toolchains, every\n"
        "names = [each.name for each in every() if not each.takes_path]\n"
        "toolchains = Toolchains()\n"
        "toolchains.fingerprints(names)\n"
        "toolchains.check(names)\n"
        "assert not {'tvm', 'tvm_ffi', 'numpy', 'importlib.metadata'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


# CUDA

NVRTC = ("nvidia_cuda_nvrtc", "nvidia_cuda_runtime", "nvidia_cuda_crt")


def test_nvrtc_is_the_library_and_the_headers_that_it_reads(tmp_path: Path) -> None:
    found = set()
    for changed in ("", *NVRTC):
        site = tmp_path / f"changed{changed}"
        for name in NVRTC:
            install(site, name, "13.0.1", {f"nvidia/{name}.h": changed.encode() if name == changed else b"same"})
        found.add(Toolchains(search_path=[str(site)]).fingerprint("nvrtc"))
    assert len(found) == 4


@pytest.mark.parametrize("missing", NVRTC)
def test_a_missing_part_of_nvrtc_is_told_before_anything_is_read(tmp_path: Path, missing: str) -> None:
    for name in NVRTC:
        if name != missing:
            install(tmp_path, name, "13.0.1", {})
    toolchains = Toolchains(search_path=[str(tmp_path)])
    for ask in (lambda: toolchains.check(["nvrtc"]), lambda: toolchains.fingerprint("nvrtc")):
        with pytest.raises(LocalEnvironmentError) as caught:
            ask()
        assert f"building for CUDA needs {missing.replace('_', '-')}, which is not installed" in str(caught.value)
        assert 'python -m pip install "mlcbuild[cuda]"' in str(caught.value)


@pytest.mark.parametrize("change", ["bin/nvcc", "include/cuda_fp16.h", "nvvm/bin/cicc", "nvvm/libdevice/new.bc"])
def test_a_toolkit_counts_by_its_compilers_and_headers_and_not_by_the_rest(tmp_path: Path, change: str) -> None:
    toolkit, memory = tmp_path / "cuda", tmp_path / "memory.json"
    for file in ("bin/nvcc", "include/cuda_fp16.h", "nvvm/bin/cicc", "lib64/libcudart.so"):
        (toolkit / file).parent.mkdir(parents=True, exist_ok=True)
        (toolkit / file).write_bytes(b"1")

    def fingerprint() -> str:
        toolchains = Toolchains(memory)
        found = toolchains.fingerprint(f"cuda_toolkit:{toolkit}")
        toolchains.save()
        return found

    before = fingerprint()
    (toolkit / "lib64" / "libcudart.so").write_bytes(b"22")
    assert fingerprint() == before
    (toolkit / change).parent.mkdir(parents=True, exist_ok=True)
    (toolkit / change).write_bytes(b"22")
    assert fingerprint() != before


def test_a_folder_that_is_no_toolkit_is_told_and_watched(tmp_path: Path) -> None:
    toolchains = Toolchains()
    for ask in (toolchains.check, toolchains.fingerprints):
        with pytest.raises(LocalEnvironmentError, match=f"there is no CUDA toolkit in {tmp_path}: it has no bin/nvcc"):
            ask([f"cuda_toolkit:{tmp_path}"])
    assert str(tmp_path / "bin" / "nvcc") in toolchains.observed


def test_a_folder_counts_with_what_its_links_lead_to(tmp_path: Path) -> None:
    """As in CUDA toolkits. `/usr/bin/X11 -> .` is a loop of Debian's."""
    for path in ("kit/include/a.h", "elsewhere/b.h"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("1")
    (tmp_path / "kit/include/lnk").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "kit/include/loop").symlink_to(".")
    files = InstalledFiles(JsonCache(None, kind="test"))
    before = files.tree(tmp_path / "kit/include")
    (tmp_path / "elsewhere/b.h").write_text("22")
    assert files.tree(tmp_path / "kit/include") != before
    assert f"{tmp_path}/kit/include/lnk/b.h" in files.observed


def test_of_several_gccs_the_one_that_compiles_counts() -> None:
    of_twelve = folders_of(Path("/usr/bin/x86_64-linux-gnu-g++-12"))
    assert "/usr/lib/gcc/x86_64-linux-gnu/12" in of_twelve
    assert "/usr/include/c++/12" in of_twelve
    assert not {"/usr/lib/gcc", "/usr/include/c++"} & set(of_twelve)
    of_one = folders_of(Path("/usr/bin/g++"))
    assert {"/usr/lib/gcc", "/usr/libexec/gcc", "/usr/include/c++"} < set(of_one), "no version is told"
