"""TVM, the compiler of models."""

from __future__ import annotations

import re
import sys

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.toolchain import DistributionToolchain

_FFI = "apache-tvm-ffi"
_FFI_PIN = "0.1.14.post1"
_FFI_GOOD = re.compile(r"0\.1\.14(\.|$)")

_TRIAL = """
import json, subprocess, sys, time
sys.modules["torch"] = None
began = time.perf_counter()
import tvm
imported = time.perf_counter() - began
import numpy
from tvm import te
from mlcbuild.compiler import ir
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.programs import find_program
a = te.placeholder((8,), "float32", name="a")
b = te.compute((8,), lambda index: a[index] + 1.0, name="b")
module = tvm.IRModule({"doctor": te.create_prim_func([a, b]).with_attr("global_symbol", "doctor")})
read = ir.from_json(ir.to_json(module), where="what was written")
tvm.tirx.build(read, target={"kind": "llvm"}).write_to_file("doctor.o", "o")
try:
    linker = str(find_program("ld"))
except LocalEnvironmentError:
    done = "compiled a function (there is no linker to run it with)"
else:
    subprocess.run([linker, "-shared", "-o", "doctor.so", "doctor.o"], check=True)
    x, y = tvm.runtime.tensor(numpy.arange(8, dtype="float32")), tvm.runtime.empty((8,), "float32")
    tvm.runtime.load_module("./doctor.so")["doctor"](x, y)
    assert (y.numpy() == numpy.arange(1, 9)).all(), y
    done = "compiled, linked and ran a function"
print(json.dumps({"done": done, "import_seconds": imported, "seconds": time.perf_counter() - began}))
"""


class _Tvm(DistributionToolchain):
    def check(self, files: InstalledFiles, path: str) -> None:
        """Raises LocalEnvironmentError also for a tvm-ffi that tvm cannot work with; reads metadata alone.

        With tvm-ffi 0.1.15, `tvm.ir.save_json` of tvm 0.27.0.post1 ends the process by a segmentation fault.
        """
        super().check(files, path)
        found = files.distributions.find(_FFI)
        if found is not None and not _FFI_GOOD.match(found.version):
            raise LocalEnvironmentError(
                f"{_FFI} {found.version} is installed beside {sys.executable}; mlcbuild needs 0.1.14.*, "
                "because newer ones crash while they save TVM's IR",
                advice=(f'run: python -m pip install "{_FFI}=={_FFI_PIN}"',),
            )


TOOLCHAIN = _Tvm(
    name="tvm",
    distributions=("apache-tvm", _FFI),
    purpose="compiling models",
    advice=("install mlcbuild again, with what it depends on: python -m pip install mlcbuild",),
    preload=("numpy", "tvm", "tvm.relax", "tvm.relax.frontend.nn.llm.kv_cache", "tvm.s_tir"),
    preloaded_for=("apache-tvm", _FFI),
    trial=_TRIAL,
    trial_seconds=120.0,  # the first import after an installation reads hundreds of megabytes
)
