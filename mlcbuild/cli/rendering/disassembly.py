"""Disassembles machine code with the programs of this machine.

Addresses are left out, so that two versions of a function differ in the instructions that changed, and not in all that
follow.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cli.rendering.forms import Form
from mlcbuild.system_programs import program_path

_SECONDS = 120.0
_TOOLKIT = Path("/usr/local/cuda/bin")
_OFFSET = re.compile(r"^(\s*)/\*[0-9a-f]{4,}\*/\s*", re.MULTILINE)
_ENCODING = re.compile(r"\s*/\* 0x[0-9a-f]{16} \*/\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Disassembled:
    """The text, or why there is none."""

    text: str = ""
    missing: str = ""


@dataclass(frozen=True, kw_only=True)
class _Program:
    """`arguments` come before the file."""

    name: str
    find: Callable[[str], str]
    arguments: tuple[str, ...]


def _in_the_system(name: str) -> str:
    return program_path(name)


def _of_cuda(name: str) -> str:
    """A program of the CUDA toolkit: as a distribution beside this Python's, or as installed in the usual folder."""
    folders = [Path(entry, "nvidia") for entry in sys.path if entry]
    found = (path for folder in folders if folder.is_dir() for path in sorted(folder.glob(f"cu*/bin/{name}")))
    candidates = (*found, _TOOLKIT / name)
    return next((str(path) for path in candidates if path.is_file()), "") or program_path(name)


_NATIVE = (
    _Program(
        name="objdump",
        find=_in_the_system,
        arguments=("--disassemble", "--reloc", "--demangle", "--no-show-raw-insn", "--no-addresses"),
    ),
    _Program(
        name="llvm-objdump",
        find=_in_the_system,
        arguments=("--disassemble", "--reloc", "--demangle", "--no-show-raw-insn", "--no-leading-addr"),
    ),
)
_CUBIN = (
    _Program(name="nvdisasm", find=_of_cuda, arguments=("--print-code",)),
    _Program(name="cuobjdump", find=_of_cuda, arguments=("--dump-sass",)),
)
_PROGRAMS: dict[Form, tuple[tuple[_Program, ...], str]] = {
    Form.NATIVE: (_NATIVE, "install binutils or llvm"),
    Form.CUBIN: (_CUBIN, 'pip install "mlcbuild[cuda]", or install the CUDA toolkit'),
    Form.FAT_BINARY: (_CUBIN[1:], "install the CUDA toolkit"),
}


def disassembled(path: Path, form: Form) -> Disassembled:
    """The machine code of a file as assembly."""
    programs, advice = _PROGRAMS[form]
    failure = ""
    for program in programs:
        found = program.find(program.name)
        if not found:
            continue
        try:
            ended = subprocess.run(
                [found, *program.arguments, str(path)],
                capture_output=True,
                check=False,
                stdin=subprocess.DEVNULL,
                timeout=_SECONDS,
                env={"LC_ALL": "C"},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            failure = f"{program.name} failed: {error}"
            continue
        text = ended.stdout.decode("utf-8", "replace")
        if ended.returncode == 0 and text.strip():
            return Disassembled(text=_cleaned(text, path))
        said = (ended.stderr.decode("utf-8", "replace").strip().splitlines() or ["it printed nothing"])[-1]
        failure = f"{program.name} failed: {said.replace(str(path), 'it')}"
    names = " and ".join(f"no {program.name}" for program in programs)
    return Disassembled(missing=failure or f"there is {names} on this machine: {advice}")


def _cleaned(text: str, path: Path) -> str:
    """Without the name of the file, offsets and empty lines at both ends."""
    lines = [line for line in text.splitlines() if str(path) not in line]
    shown = _ENCODING.sub("", _OFFSET.sub(r"\1", "\n".join(lines)))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in shown.splitlines())).strip("\n") + "\n"
