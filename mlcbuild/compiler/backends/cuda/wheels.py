"""Where the CUDA compilers lie: in wheels beside tvm, so that no toolkit, driver or GPU is asked for anything."""

from __future__ import annotations

import sys
from pathlib import Path

from mlcbuild.errors import LocalEnvironmentError

_FOLDER = Path("nvidia", "cu13")


def find(path: str) -> Path:
    """A file or folder of the wheels, such as `lib/libnvrtc.so.13`; the first that Python's search path reaches.

    Raises LocalEnvironmentError where no wheel brought it.
    """
    for entry in sys.path:
        found = Path(entry or ".") / _FOLDER / path
        if found.exists():
            return found.absolute()
    raise LocalEnvironmentError(
        f"the CUDA compiler's {path} is not installed beside {sys.executable}",
        advice=('run: python -m pip install "mlcbuild[cuda]"',),
    )
