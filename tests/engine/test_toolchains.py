"""A toolchain's fingerprint is its content: the same in every environment, another after every change."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlcbuild.engine import distributions
from mlcbuild.engine.distributions import Distributions
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.engine.toolchains import NAMES, Toolchains, find_program, needed_libraries
from mlcbuild.errors import LocalEnvironmentError


def record_hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def install(
    site: Path,
    name: str,
    version: str,
    files: dict[str, bytes],
    *,
    installer: str = "pip",
    extra_rows: tuple[str, ...] = (),
) -> Path:
    """Install a wheel the way an installer does; answer its metadata folder."""
    information = site / f"{name}-{version}.dist-info"
    information.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n".encode()
    everything = {
        **files,
        f"{information.name}/METADATA": metadata,
        f"{information.name}/INSTALLER": installer.encode(),
    }
    rows = [f"{information.name}/RECORD,,", *extra_rows]
    for path, data in everything.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
        rows.append(f'"{path}",{record_hash(data)},{len(data)}')
    (information / "RECORD").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return information


FILES = {"alpha/__init__.py": b"x = 1\n", "alpha/data,with comma.txt": b"1", "alpha/é.so": b"\x7fELF"}


def fingerprint(*sites: Path, name: str = "alpha", memory: Path | None = None) -> str:
    store = JsonCache(memory, kind="test")
    found = Distributions(store, [str(site) for site in sites]).fingerprint(name)
    store.save()
    return found


def test_environment_and_installer_do_not_count(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "elsewhere" / "two"
    install(one, "alpha", "1.0", FILES, extra_rows=("../../../bin/alpha,sha256=aaaa,10",))
    information = install(two, "alpha", "1.0", FILES, installer="uv", extra_rows=("../../../bin/alpha,sha256=bbbb,12",))
    (information / "REQUESTED").touch()
    with (information / "RECORD").open("a") as record:
        record.write(f"alpha/__pycache__/__init__.cpython-311.pyc,,\n{information.name}/REQUESTED,sha256=cc,0\n")
    assert fingerprint(one) == fingerprint(two)


@pytest.mark.parametrize("change", ["content", "one more", "one less", "renamed", "version"])
def test_what_the_wheel_brought_counts(tmp_path: Path, change: str) -> None:
    files = dict(FILES)
    version = "1.0"
    if change == "content":
        files["alpha/__init__.py"] = b"x = 2\n"
    elif change == "one more":
        files["alpha/more.py"] = b""
    elif change == "one less":
        del files["alpha/é.so"]
    elif change == "renamed":
        files["alpha/f.so"] = files.pop("alpha/é.so")
    else:
        version = "1.0.post1"
    install(tmp_path / "one", "alpha", "1.0", FILES)
    install(tmp_path / "two", "alpha", version, files)
    assert fingerprint(tmp_path / "one") != fingerprint(tmp_path / "two")


def test_names_are_compared_as_python_packaging_does(tmp_path: Path) -> None:
    install(tmp_path, "Alpha_Beta.Gamma", "1", FILES)
    assert fingerprint(tmp_path, name="alpha-beta-gamma") == fingerprint(tmp_path, name="ALPHA.beta_gamma")


def test_the_first_folder_of_the_search_path_wins(tmp_path: Path) -> None:
    install(tmp_path / "one", "alpha", "1.0", FILES)
    install(tmp_path / "two", "alpha", "2.0", FILES)
    assert fingerprint(tmp_path / "two", tmp_path / "one") == fingerprint(tmp_path / "two")


def test_a_missing_distribution_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocalEnvironmentError, match="alpha is not installed"):
        fingerprint(tmp_path)


def test_without_a_record_the_files_themselves_count(tmp_path: Path) -> None:
    information = install(tmp_path, "alpha", "1.0", FILES)
    (information / "RECORD").unlink()
    before = fingerprint(tmp_path)
    (tmp_path / "alpha/__pycache__").mkdir()
    (tmp_path / "alpha/__pycache__/__init__.cpython-311.pyc").write_bytes(b"byte code")
    assert fingerprint(tmp_path) == before
    (tmp_path / "alpha/é.so").write_bytes(b"\x7fELF2")
    assert fingerprint(tmp_path) != before


def test_without_a_record_and_without_files_it_is_told(tmp_path: Path) -> None:
    information = install(tmp_path, "alpha", "1.0", FILES)
    (information / "RECORD").unlink()
    shutil.rmtree(tmp_path / "alpha")
    with pytest.raises(LocalEnvironmentError, match=r"alpha 1\.0 cannot be read.*\n.*force-reinstall"):
        fingerprint(tmp_path)


def test_an_editable_distribution_counts_by_its_working_tree(tmp_path: Path) -> None:
    project = tmp_path / "my project"
    (project / "src/alpha").mkdir(parents=True)
    (project / "src/alpha/__init__.py").write_bytes(b"x = 1\n")
    information = install(tmp_path / "site", "alpha", "1.0", {"__editable__.alpha.pth": b"path"})
    (information / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}, "url": project.as_uri()}))
    (information / "top_level.txt").write_text("alpha\n")
    before = fingerprint(tmp_path / "site", memory=tmp_path / "memory")
    (project / "src/alpha/__init__.py").write_bytes(b"x = 2\n")
    assert fingerprint(tmp_path / "site", memory=tmp_path / "memory") != before


def test_memory_is_believed_until_the_record_changes(tmp_path: Path) -> None:
    information = install(tmp_path / "site", "alpha", "1.0", FILES)
    memory = tmp_path / "memory.json"
    before = fingerprint(tmp_path / "site", memory=memory)
    marked = JsonCache(memory, kind="test")
    identity, _ = marked.get(f"distribution {information}")
    marked.set(f"distribution {information}", [identity, "remembered"])
    marked.save()
    assert fingerprint(tmp_path / "site", memory=memory) == "remembered"
    with (information / "RECORD").open("a") as record:
        record.write("alpha/more.py,sha256=abc,1\n")
    assert fingerprint(tmp_path / "site", memory=memory) not in ("remembered", before)


def test_packages_lead_to_their_distributions(tmp_path: Path) -> None:
    install(tmp_path, "PyAlpha", "1", {"alpha/__init__.py": b"", "single.py": b"", "_fast.cpython-311-x86_64.so": b""})
    install(tmp_path, "ns-one", "1", {"shared/one/__init__.py": b""})
    install(tmp_path, "ns-two", "1", {"shared/two/__init__.py": b""})
    found = Distributions(JsonCache(None, kind="test"), [str(tmp_path)])
    assert found.providing("alpha") == ("pyalpha",)
    assert found.providing("single") == ("pyalpha",)
    assert found.providing("_fast") == ("pyalpha",)
    assert found.providing("shared") == ("ns-one", "ns-two")
    assert found.providing("nothing") == ()


def test_what_provides_packages_is_read_once_whatever_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, work, memory = tmp_path / "site", tmp_path / "work", tmp_path / "memory.json"
    work.mkdir()
    install(site, "alpha", "1", FILES)

    def providing(package: str) -> tuple[str, ...]:
        store = JsonCache(memory, kind="test")
        found = Distributions(store, [str(work), str(site)]).providing(package)
        store.save()
        return found

    assert providing("alpha") == ("alpha",)
    (work / "something.txt").touch()
    with monkeypatch.context() as patch:
        patch.setattr(distributions, "_top_level_names", lambda _: pytest.fail("read again"))
        assert providing("alpha") == ("alpha",)
    install(site, "beta", "1", {"beta.py": b""})
    assert providing("beta") == ("beta",)


# Toolchains


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
    install_tvm(tmp_path, ffi=version).check_tvm_ffi()


@pytest.mark.parametrize("version", ["0.1.15", "0.1.15.post2", "0.1.140", "0.2.0"])
def test_a_tvm_ffi_that_crashes_is_refused_with_the_remedy(tmp_path: Path, version: str) -> None:
    with pytest.raises(LocalEnvironmentError) as caught:
        install_tvm(tmp_path, ffi=version).check_tvm_ffi()
    assert f"apache-tvm-ffi {version} is installed" in str(caught.value)
    assert 'python -m pip install "apache-tvm-ffi==0.1.14.post1"' in str(caught.value)


def test_a_missing_tvm_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocalEnvironmentError, match="apache-tvm is not installed"):
        Toolchains(search_path=[str(tmp_path)]).check_tvm_ffi()


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
    with pytest.raises(LocalEnvironmentError, match="install binutils") as caught:
        find_program("ld", [str(tmp_path)])
    assert str(tmp_path) in str(caught.value)


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
    found = Toolchains().fingerprints([*NAMES, "tvm"])
    assert list(found) == list(NAMES)
    assert all(len(fingerprint) == 64 for fingerprint in found.values())
    assert len(set(found.values())) == len(NAMES)
    with pytest.raises(ValueError, match="unknown toolchain 'nvcc'"):
        Toolchains().fingerprint("nvcc")


def test_fingerprints_are_taken_without_importing_what_they_are_of(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from mlcbuild.engine.toolchains import NAMES, Toolchains\n"
        "toolchains = Toolchains()\n"
        "toolchains.fingerprints(NAMES)\n"
        "toolchains.check_tvm_ffi()\n"
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
