"""`exported` → `library` and `constants`: AOTInductor's package of a torch.export program, without weights, and the
constants that are no weights. Needs torch and safetensors, and g++.

Nothing is left to the machine that compiles: neither the processor's instructions, nor how many threads it has. The
package holds the library and what torch reads to load it. The C++ that it is made of, which torch would add, names the
folders that it was compiled in.
"""

from __future__ import annotations

import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

_NAME = "model"
# Level → the vector instructions that Inductor may write, in its words, and how many bits it takes at a time.
_LEVELS: dict[str, tuple[list[str], int]] = {
    "x86-64-v2": ([], 1),
    "x86-64-v3": (["avx2"], 256),
    "x86-64-v4": (["avx2", "avx512"], 512),
}
# A digest that torch makes of all files of an archive, and nobody reads.
_IDENTITY = f"{_NAME}/.data/serialization_id"
_FOLDERS = "/usr/local/bin:/usr/bin:/bin"  # where g++ is looked for, as toolchains are
_SOURCES = (".cpp", ".h")


def run(*, exported: Path, library: Path, constants: Path, level: str, threads: int) -> None:
    """`threads` is how many the library uses; 0: as many as the process that runs it has."""
    taken, made, kept = exported.resolve(), library.resolve(), constants.resolve()
    folder = Path(os.environ["TMPDIR"]).resolve()
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    os.environ["PATH"] = _FOLDERS
    warnings.simplefilter("ignore")
    import torch
    from torch._inductor import aoti_compile_and_package, cpp_builder, cpu_vec_isa

    instructions, bits = _LEVELS[level]
    cpu_vec_isa.x86_isa_checker = lambda: instructions
    _stay_in(Path.cwd(), cpp_builder)
    options = {
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.model_name_for_generated_files": _NAME,
        "aot_inductor.enable_line_tables": False,
        "aot_inductor.precompile_headers": False,
        "cpp_cache_precompile_headers": False,
        "compile_threads": 1,
        "cpp.march": level,
        "cpp.simdlen": bits,
        "cpp.vec_isa_ok": True,
        "cpp.threads": threads or -1,
        "cpp.dynamic_threads": not threads,
    }
    packed, program = folder / f"{_NAME}.pt2", torch.export.load(str(taken))
    _save({name: value for name, value in program.constants.items() if isinstance(value, torch.Tensor)}, kept)
    try:
        aoti_compile_and_package(program, package_path=str(packed), inductor_configs=options)
    except Exception as error:
        told = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        first = next((line for line in told if "error" in line.lower()), told[0])
        raise SystemExit(f"torch {torch.__version__} cannot compile the model: {first}") from None
    _repack(packed, made, str(Path.cwd()).encode())


def _stay_in(place: Path, cpp_builder: Any) -> None:
    """Every command runs in this folder, with paths relative to it: Inductor splits its commands at spaces, and what
    compilers write of their paths is the same wherever the folder lies."""
    os.environ["PWD"] = "/proc/self/cwd"  # GCC believes it where it is the current folder.
    prefix, found, run = f"{place}{os.sep}", cpp_builder.CppBuilder.get_command_line, cpp_builder._run_compile_cmd
    cpp_builder.CppBuilder.get_command_line = lambda builder: found(builder).replace(prefix, "")
    cpp_builder._run_compile_cmd = lambda line, _cwd: run(line.replace(prefix, ""), str(place))


def _save(values: dict[str, Any], file: Path) -> None:
    import safetensors
    import torch

    written: Any = {
        name: {
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "data": value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(),
        }
        for name, value in sorted(values.items())
    }
    safetensors.serialize_file(written, file, metadata=None)


def _repack(packed: Path, made: Path, folder: bytes) -> None:
    """The archive without C++, and with fixed dates and a fixed identity."""
    with zipfile.ZipFile(packed) as archive, zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as out:
        for name in sorted(archive.namelist()):
            if name.endswith(_SOURCES):
                continue
            content = b"0" * 40 if name == _IDENTITY else archive.read(name)
            if folder in content:
                raise RuntimeError(f"{name} names the folder that it was compiled in")
            out.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
