"""Where the CUDA compilers lie: in wheels beside tvm, so that no toolkit, driver or GPU is asked for anything."""

from __future__ import annotations

import csv
import functools
import os
import sys
import tempfile
from pathlib import Path

from mlcbuild.errors import LocalEnvironmentError

_FOLDER = Path("nvidia", "cu13")
_HEADERS = "include"

# The distributions that a key counts, by the names of their metadata folders.
DISTRIBUTIONS = ("nvidia_cuda_nvrtc", "nvidia_cuda_runtime", "nvidia_cuda_crt")


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


def counted_headers() -> Path:
    """A folder of links to the headers of DISTRIBUTIONS, and no others. It lasts as long as this process.

    Other distributions install into the same folder (nvidia-cuda-cccl, nvidia-cublas), and CUDA's own headers read some
    of theirs if they are there. No key counts those. Raises LocalEnvironmentError where no wheel brought headers.
    """
    return Path(_linked_headers(find(_HEADERS)).name)


@functools.cache
def _linked_headers(folder: Path) -> tempfile.TemporaryDirectory[str]:
    site = folder.parents[len(_FOLDER.parts)]
    linked = tempfile.TemporaryDirectory(prefix="headers-", ignore_cleanup_errors=True)
    for name in _listed_headers(site):
        path = f"{linked.name}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        os.symlink(folder / name, path)  # noqa: PTH211
    return linked


def _listed_headers(site: Path) -> list[str]:
    """What the RECORDs of DISTRIBUTIONS list below the folder of headers, relative to it."""
    start = f"{_FOLDER.as_posix()}/{_HEADERS}/"
    found = set[str]()
    for distribution in DISTRIBUTIONS:
        for record in site.glob(f"{distribution}-*.dist-info/RECORD"):
            with record.open(encoding="utf-8", newline="") as stream:
                found.update(row[0].removeprefix(start) for row in csv.reader(stream) if row[0].startswith(start))
    return sorted(found)
