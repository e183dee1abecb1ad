"""How libraries for NVIDIA GPUs are linked: one ELF file with a device module of TVM's for each kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcbuild.compiler.backends.cuda import device_functions
from mlcbuild.compiler.elf_library import write_elf_library
from mlcbuild.compiler.library_image import ImageModule
from mlcbuild.compiler.linking import Linking
from mlcbuild.errors import StageError


def device_modules(*, device_code: Sequence[Path], launches: Sequence[Path]) -> list[ImageModule]:
    """The modules of cubins or fat binaries and of what launches them, which belong together by the kernel's name, what
    their files' names begin with.

    Raises StageError for device code without a launch or the other way round.
    """
    code, launch = _by_kernel(device_code), _by_kernel(launches)
    for name in sorted(code.keys() ^ launch.keys()):
        raise StageError(f"{name} has {'no launch' if name in code else 'no device code'}")
    return [
        ImageModule(
            kind=device_functions.MODULE_KIND,
            data=device_functions.to_module(
                device_functions.from_json(launch[name].read_text(encoding="utf-8"), where=launch[name].name),
                path.read_bytes(),
            ),
        )
        for name, path in sorted(code.items())
    ]


def _by_kernel(paths: Sequence[Path]) -> dict[str, Path]:
    return {path.name.partition(".")[0]: path for path in paths}


LINKING = Linking(write_library=write_elf_library, device_modules=device_modules)
