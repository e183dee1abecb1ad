"""LinkKernel: one kernel as a library of its own, for `mlcbuild tune`; no build has it.

Reads `objects` (of CompileKernel), and what else the platform's kernels have, a group an argument, as Link does. Writes
`library`, which TVM's runtime loads; its only function has the kernel's name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlcbuild.compiler import library_image
from mlcbuild.compiler.library_image import ImageModule
from mlcbuild.compiler.linking import Linking


def run(
    *, objects: Sequence[Path], library: Path, target: dict[str, Any], backend: Linking, **device: Sequence[Path]
) -> None:
    """`device` are the groups of files that `backend.device_modules` takes. Raises what Link raises."""
    modules = backend.device_modules(**device)
    native = ImageModule(kind=library_image.NATIVE_CODE, imports=tuple(range(1, 1 + len(modules))))
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        backend.write_library(
            objects=sorted(objects, key=lambda path: path.name),
            image=library_image.write([native, *modules]),
            library=library,
            target=target,
            scratch=Path(scratch),
        )
