"""Named toolchains and their fingerprints: by content, whatever a version string says.

`tvm`, `nvrtc` and `nvfatbin` are distributions; `ld` is a program of the system and the libraries of its own
project; `python` is the language's version, which with the stages' own code settles what they compute. A program is
looked for in a fixed list of folders, never by the user's PATH: a shim somebody put first there would otherwise link
the libraries of everybody who shares the cache.
"""

from __future__ import annotations

import hashlib
import re
import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlcbuild.cache.stat_memory import identity_of
from mlcbuild.engine.distributions import Distributions
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.errors import LocalEnvironmentError

NAMES = ("ld", "nvfatbin", "nvrtc", "python", "tvm")
PROGRAM_PREFIX = "program:"
TOOLKIT_PREFIX = "cuda_toolkit:"
TVM_DISTRIBUTIONS = ("apache-tvm", "apache-tvm-ffi")
# NVRTC reads headers of the runtime, and those read headers of the C++ compiler.
CUDA_DISTRIBUTIONS = {
    "nvrtc": ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-crt"),
    "nvfatbin": ("nvidia-nvfatbin",),
}
PROGRAM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
TVM_FFI_PIN = "0.1.14.post1"

_TOOLKIT_FOLDERS = ("bin", "include", "nvvm/bin", "nvvm/libdevice")
_TVM_FFI_GOOD = re.compile(r"0\.1\.14(\.|$)")
_LIBRARY_FOLDERS = (
    "/usr/local/lib",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
)
# The libraries that binutils' own code lives in; the C library and compression do not decide what is linked.
_OWN_LIBRARIES = re.compile(rb"lib(?:bfd|opcodes|ctf|sframe)[-.\w]*\.so[.\w]*")
_PROGRAM_HEADER_DYNAMIC = 2
_DYNAMIC_NEEDED = 1
_DYNAMIC_STRINGS = 5
_PROGRAM_HEADER_LOAD = 1
_KIND = "toolchains 1"


class Toolchains:
    """Fingerprints, remembered by stat in `memory_path` (a file of the workspace's `.mlcbuild/`).

    `search_path` is where distributions are looked for (by default `sys.path`). Call `save` at the end of a
    build.
    """

    def __init__(
        self,
        memory_path: Path | None = None,
        *,
        search_path: Sequence[str] | None = None,
        program_folders: Sequence[str] = PROGRAM_FOLDERS,
    ) -> None:
        self._memory = JsonCache(memory_path, kind=_KIND)
        self._program_folders = tuple(program_folders)
        self.distributions = Distributions(self._memory, search_path)
        self._observed: set[str] = set()

    @property
    def observed(self) -> frozenset[str]:
        """Absolute paths whose state decided any answer, some of them absent."""
        return frozenset(self._observed | self.distributions.observed)

    def fingerprint(self, name: str) -> str:
        """64 hexadecimal digits for a name in `NAMES`; for `program:PATH`, a program by the content of its file; or for
        `cuda_toolkit:PATH`, a CUDA toolkit by its compilers, its headers and the host compiler that preprocesses.

        Raises LocalEnvironmentError where the toolchain is not installed, ValueError for an unknown name.
        """
        if name == "tvm":
            parts = [f"{item} {self.distributions.fingerprint(item)}" for item in TVM_DISTRIBUTIONS]
        elif name in CUDA_DISTRIBUTIONS:
            self._check_cuda(name)
            parts = [f"{item} {self.distributions.fingerprint(item)}" for item in CUDA_DISTRIBUTIONS[name]]
        elif name == "ld":
            parts = self._program("ld")
        elif name == "python":
            parts = [python_version()]
        elif name.startswith(PROGRAM_PREFIX):
            program = Path(name.removeprefix(PROGRAM_PREFIX))
            self._observed.add(str(program))
            if not program.is_file():
                raise LocalEnvironmentError(
                    f"there is no program {program}", advice=("install it, or correct its path",)
                )
            parts = [self._content(program)]
        elif name.startswith(TOOLKIT_PREFIX):
            parts = self._toolkit(Path(name.removeprefix(TOOLKIT_PREFIX)))
        else:
            raise ValueError(f"unknown toolchain {name!r}; known: {', '.join(NAMES)}")
        return hashlib.sha256("\n".join([name, *parts]).encode()).hexdigest()

    def fingerprints(self, names: Iterable[str]) -> dict[str, str]:
        """Name → fingerprint. Raises as `fingerprint` does."""
        return {name: self.fingerprint(name) for name in sorted(set(names))}

    def check(self, names: Iterable[str]) -> None:
        """Raises LocalEnvironmentError where one of these toolchains, as far as metadata tells, is not here.

        A build calls it first, so that what is missing is told before anything runs.
        """
        for name in sorted(set(names)):
            if name == "tvm":
                self.check_tvm_ffi()
            elif name in CUDA_DISTRIBUTIONS:
                self._check_cuda(name)
            elif name.startswith(TOOLKIT_PREFIX):
                self._check_toolkit(Path(name.removeprefix(TOOLKIT_PREFIX)))

    def check_tvm_ffi(self) -> None:
        """Raises LocalEnvironmentError for a tvm-ffi that tvm cannot work with; reads metadata alone.

        With tvm-ffi 0.1.15, `tvm.ir.save_json` of tvm 0.27.0.post1 ends the process by a segmentation fault.
        """
        advice = (f'run: python -m pip install "apache-tvm-ffi=={TVM_FFI_PIN}"',)
        for name in TVM_DISTRIBUTIONS:
            if self.distributions.find(name) is None:
                raise LocalEnvironmentError(f"{name} is not installed beside {sys.executable}", advice=advice)
        found = self.distributions.find("apache-tvm-ffi")
        if found is not None and not _TVM_FFI_GOOD.match(found.version):
            raise LocalEnvironmentError(
                f"apache-tvm-ffi {found.version} is installed beside {sys.executable}; mlcbuild needs 0.1.14.*, "
                "because newer ones crash while they save TVM's IR",
                advice=advice,
            )

    def _check_cuda(self, name: str) -> None:
        for item in CUDA_DISTRIBUTIONS[name]:
            if self.distributions.find(item) is None:
                raise LocalEnvironmentError(
                    f"building for CUDA needs {item}, which is not installed beside {sys.executable}",
                    advice=('run: python -m pip install "mlcbuild[cuda]"',),
                )

    def _check_toolkit(self, toolkit: Path) -> None:
        self._observed.add(str(toolkit / "bin" / "nvcc"))
        if not (toolkit / "bin" / "nvcc").is_file():
            raise LocalEnvironmentError(
                f"there is no CUDA toolkit in {toolkit}: it has no bin/nvcc",
                advice=("correct the platform's toolkit, or leave it out: mlcbuild[cuda] brings a compiler",),
            )

    def _toolkit(self, toolkit: Path) -> list[str]:
        self._check_toolkit(toolkit)
        trees = [self._tree(toolkit / folder) for folder in _TOOLKIT_FOLDERS]
        return [*self._program("gcc"), *trees]

    def _tree(self, folder: Path) -> str:
        """The content of all files below a folder, by their relative paths."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        self._observed.update(map(str, {folder, *(path.parent for path in files), *files}))
        identities = "".join(f"{path} {identity_of(path.stat())}\n" for path in files)
        state = hashlib.sha256(identities.encode()).hexdigest()
        remembered = self._memory.get(f"tree {folder}")
        if isinstance(remembered, list) and len(remembered) == 2 and remembered[0] == state:
            return str(remembered[1])
        content = hashlib.sha256()
        for path in files:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            content.update(f"{path.relative_to(folder)}\0{digest}\n".encode())
        self._memory.set(f"tree {folder}", [state, content.hexdigest()])
        return content.hexdigest()

    def save(self) -> None:
        """Write what was learnt; does nothing where nothing was."""
        self._memory.save()

    def _program(self, name: str) -> list[str]:
        self._observed.update(f"{folder}/{name}" for folder in self._program_folders)
        path = find_program(name, self._program_folders)
        files = [path, *self._own_libraries(path)]
        return [f"{file.name if file != path else name} {self._content(file)}" for file in files]

    def _own_libraries(self, program: Path) -> list[Path]:
        key = f"libraries {program}"
        identity = list(identity_of(program.stat()))
        remembered = self._memory.get(key)
        if isinstance(remembered, list) and len(remembered) == 2 and remembered[0] == identity:
            names = [str(name) for name in remembered[1]]
        else:
            needed = needed_libraries(program.read_bytes())
            names = sorted(name.decode() for name in needed if _OWN_LIBRARIES.fullmatch(name))
            self._memory.set(key, [identity, names])
        found = []
        for name in names:
            paths = [Path(folder, name) for folder in _LIBRARY_FOLDERS]
            self._observed.update(map(str, paths))
            found += [path for path in paths if path.is_file()][:1]
        return found

    def _content(self, path: Path) -> str:
        key = f"content {path}"
        identity = list(identity_of(path.stat()))
        remembered = self._memory.get(key)
        if isinstance(remembered, list) and len(remembered) == 2 and remembered[0] == identity:
            return str(remembered[1])
        with path.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        self._memory.set(key, [identity, content])
        return content


def find_program(name: str, folders: Sequence[str] = PROGRAM_FOLDERS) -> Path:
    """The file of a system program, links resolved, from the first folder that has it.

    Raises LocalEnvironmentError where none has.
    """
    for folder in folders:
        path = Path(folder, name)
        if path.is_file():
            return path.resolve()
    raise LocalEnvironmentError(
        f"there is no program {name!r} in {', '.join(folders)}",
        advice=("install binutils",) if name == "ld" else (),
    )


def python_version() -> str:
    """Implementation and version, for example `cpython 3.11.4 final`: not its build, which differs by
    packager.
    """
    version = sys.version_info
    return f"{sys.implementation.name} {version.major}.{version.minor}.{version.micro} {version.releaselevel}"


def needed_libraries(program: bytes) -> tuple[bytes, ...]:
    """The DT_NEEDED names of a 64-bit little-endian ELF file, in its order; () for any other file.

    The layout is that of the System V ABI, chapters 4 and 5.
    """
    try:
        return _needed_libraries(program)
    except (struct.error, OverflowError, ValueError):
        return ()


def _needed_libraries(program: bytes) -> tuple[bytes, ...]:
    if program[:6] != b"\x7fELF\x02\x01":
        return ()
    (table,) = struct.unpack_from("<Q", program, 32)
    entry_bytes, count = struct.unpack_from("<HH", program, 54)
    headers = [struct.unpack_from("<IIQQQQ", program, table + index * entry_bytes) for index in range(count)]
    dynamic: list[tuple[int, int]] = []
    for kind, _, offset, _, _, size in headers:
        if kind == _PROGRAM_HEADER_DYNAMIC:
            dynamic = [struct.unpack_from("<qQ", program, offset + at) for at in range(0, size, 16)]
    addresses = [value for tag, value in dynamic if tag == _DYNAMIC_STRINGS]
    strings = [
        offset + addresses[0] - address
        for kind, _, offset, address, _, size in headers
        if kind == _PROGRAM_HEADER_LOAD and addresses and address <= addresses[0] < address + size
    ]
    if not strings:
        return ()
    starts = [strings[0] + value for tag, value in dynamic if tag == _DYNAMIC_NEEDED]
    return tuple(program[start : program.index(b"\0", start)] for start in starts if start < len(program))
