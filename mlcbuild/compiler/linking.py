"""How a backend makes a library of the parts that Link has: what of it a plug-in says.

Link takes a `Linking` as its plug-in `backend`: `LINKING` of `backends/<kind>/link.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mlcbuild.compiler.library_image import ImageModule


class WriteLibrary(Protocol):
    """Makes the file `library` of object files and of the image that TVM's runtime looks for (`library_image`).

    `scratch` is an empty directory for whatever is needed on the way. Raises StageError for objects that do not fit
    together and for a target that nothing here links for, LocalEnvironmentError where a tool is missing.
    """

    def __call__(
        self, *, objects: Sequence[Path], image: bytes, library: Path, target: Mapping[str, Any], scratch: Path
    ) -> None: ...


def _no_modules() -> Sequence[ImageModule]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Linking:
    """`write_library` makes the file.

    `device_modules` gives the modules that the image holds besides the executable and the native code. It is called
    with the files that the platform's kernels have besides objects: a keyword argument for each of the groups
    (`rules.backend.PlatformInfo.kernel_groups`).
    """

    write_library: WriteLibrary
    device_modules: Callable[..., Sequence[ImageModule]] = _no_modules
