"""A CUDA toolkit that a platform names by its folder: `cuda_toolkit:/usr/local/cuda`.

It counts by its compilers, its headers, and the host compiler that preprocesses for it.
"""

from __future__ import annotations

from pathlib import Path

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.toolchain import Toolchain

_FOLDERS = ("bin", "include", "nvvm/bin", "nvvm/libdevice")
_HOST_COMPILER = "gcc"

# Without a platform the doctor knows no folder; it tries what every toolkit needs besides.
_TRIAL = """
import json, subprocess
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.programs import find_program
try:
    compiler = str(find_program("gcc"))
except LocalEnvironmentError:
    told = {"skipped": "there is no gcc; only platforms that name a CUDA toolkit need it"}
else:
    ran = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True)
    told = {"done": f"its host compiler is {ran.stdout.partition(chr(10))[0]}, {compiler}"}
print(json.dumps(told))
"""


class _CudaToolkit(Toolchain):
    def check(self, files: InstalledFiles, path: str) -> None:
        if not files.is_file(Path(path, "bin", "nvcc")):
            raise LocalEnvironmentError(
                f"there is no CUDA toolkit in {path}: it has no bin/nvcc",
                advice=("correct the platform's toolkit, or leave it out: mlcbuild[cuda] brings a compiler",),
            )

    def contents(self, files: InstalledFiles, path: str) -> list[str]:
        self.check(files, path)
        compiler = files.program(_HOST_COMPILER, advice=self.advice)
        return [
            f"{_HOST_COMPILER} {files.content(compiler)}",
            *(files.tree(Path(path, folder)) for folder in _FOLDERS),
        ]


TOOLCHAIN = _CudaToolkit(
    name="cuda_toolkit",
    takes_path=True,
    is_optional=True,
    advice=("install gcc",),
    trial=_TRIAL,
    trial_seconds=20.0,
)
