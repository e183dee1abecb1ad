"""Link: bytecode, objects and device code become one library.

Reads `executable` and `shape_functions` (of Lower), `objects` (of every kernel), and what else the platform's kernels
have, a group an argument. Writes `library`, which TVM's runtime loads. What the runtime looks for in it, the image, is
made here; the backend says which device modules belong into the image, and makes the file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlcbuild.compiler import library_image
from mlcbuild.compiler.library_image import ImageModule
from mlcbuild.compiler.linking import Linking
from mlcbuild.errors import StageError

_EXECUTABLE_MAGIC = (0xD225DE2F4214151E).to_bytes(8, "little")


def run(
    *,
    executable: Path,
    shape_functions: Path,
    objects: Sequence[Path],
    library: Path,
    target: dict[str, Any],
    backend: Linking,
    **device: Sequence[Path],
) -> None:
    """`device` are the groups of files that `backend.device_modules` takes.

    Raises StageError for an executable that is none and for parts that do not fit together; LocalEnvironmentError where
    a tool is missing.
    """
    image = _image(executable, backend.device_modules(**device))
    ordered = sorted(objects, key=lambda path: path.name)
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        backend.write_library(
            objects=[*ordered, shape_functions], image=image, library=library, target=target, scratch=Path(scratch)
        )


def _image(executable: Path, device_modules: Sequence[ImageModule]) -> bytes:
    """The executable imports the native code, and that the device code: a module a kernel.

    A module's code goes to the device when a function of it is called first, so that a process pays for the kernels
    that it uses; and nothing has to be linked anew on a device when one kernel changes.
    """
    program = executable.read_bytes()
    if not program.startswith(_EXECUTABLE_MAGIC):
        raise StageError(f"{executable.name} is not an executable of TVM's virtual machine")
    imported = tuple(range(2, 2 + len(device_modules)))
    return library_image.write(
        [
            ImageModule(kind=library_image.EXECUTABLE, data=program, imports=(1,)),
            ImageModule(kind=library_image.NATIVE_CODE, imports=imported),
            *device_modules,
        ]
    )
