"""What is installed beside this Python: by metadata first, then tried in processes of its own."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence

from mlcbuild.doctor.check import Check
from mlcbuild.doctor.children import run_python
from mlcbuild.doctor.finding import Finding, ok, problem, skipped
from mlcbuild.engine.distributions import Distributions
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.engine.toolchains import CUDA_DISTRIBUTIONS, TVM_DISTRIBUTIONS, Toolchains, find_program
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.figures import duration

TVM_SECONDS = 120.0  # the first import after an installation reads hundreds of megabytes
_CUDA_SECONDS = 60.0
_EXTRA_SECONDS = 30.0
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:==\s*([0-9][A-Za-z0-9.]*))?")
# Distribution → the module to import, the extra that brings it, and what goes without it.
EXTRAS = {
    "boto3": ("boto3", "s3", "remote caches in buckets, and s3_file"),
    "grpcio": ("grpc", "grpc", "remote caches over gRPC"),
    "cryptography": ("cryptography.hazmat.primitives.asymmetric.ed25519", "signing", "signed results"),
}

_TVM_PROGRAM = """
import json, subprocess, sys, time
sys.modules["torch"] = None
began = time.perf_counter()
import tvm
imported = time.perf_counter() - began
import numpy
from tvm import te
from mlcbuild.compiler import ir
a = te.placeholder((8,), "float32", name="a")
b = te.compute((8,), lambda index: a[index] + 1.0, name="b")
module = tvm.IRModule({"doctor": te.create_prim_func([a, b]).with_attr("global_symbol", "doctor")})
read = ir.from_json(ir.to_json(module), where="what was written")
tvm.tirx.build(read, target={"kind": "llvm"}).write_to_file("doctor.o", "o")
linker = sys.argv[1]
ran = False
if linker:
    subprocess.run([linker, "-shared", "-o", "doctor.so", "doctor.o"], check=True)
    x, y = tvm.runtime.tensor(numpy.arange(8, dtype="float32")), tvm.runtime.empty((8,), "float32")
    tvm.runtime.load_module("./doctor.so")["doctor"](x, y)
    assert (y.numpy() == numpy.arange(1, 9)).all(), y
    ran = True
whole = time.perf_counter() - began
print(json.dumps({"version": tvm.__version__, "import_seconds": imported, "seconds": whole, "ran": ran}))
"""
_CUDA_PROGRAM = """
import json, time
began = time.perf_counter()
from mlcbuild.compiler.backends.cuda.nvrtc import compile_text
code = compile_text('extern "C" __global__ void doctor(float *x) { x[threadIdx.x] += 1.0f; }', "sm_90")
assert code.startswith(b"\\x7fELF"), code[:4]
print(json.dumps({"seconds": time.perf_counter() - began, "bytes": len(code)}))
"""
# Of the driver's interface: cuInit, cuDriverGetVersion, cuDeviceGetCount, cuDeviceGetName («CUDA Driver API»).
_GPU_PROGRAM = """
import ctypes, json
driver = ctypes.CDLL("libcuda.so.1")
version, count, names = ctypes.c_int(), ctypes.c_int(), []
code = driver.cuInit(0) or driver.cuDriverGetVersion(ctypes.byref(version)) or driver.cuDeviceGetCount(
    ctypes.byref(count))
for index in range(0 if code else count.value):
    name = ctypes.create_string_buffer(100)
    code = driver.cuDeviceGetName(name, 100, index)
    names.append(name.value.decode())
print(json.dumps({"code": code, "version": version.value, "names": names}))
"""


def distribution_checks() -> Sequence[Check]:
    return (
        Check(name="dependencies", examine=dependencies),
        Check(name="tvm", examine=tvm_versions),
        Check(name="tvm compiles", examine=tvm_compiles, seconds=TVM_SECONDS + 5),
        Check(name="CUDA compiler", examine=cuda_compiles, seconds=_CUDA_SECONDS + 5),
        Check(name="GPU", examine=gpu, seconds=_EXTRA_SECONDS + 5),
        *(
            Check(name=name, examine=lambda name=name: extra(name), seconds=_EXTRA_SECONDS + 5)  # type: ignore[misc]
            for name in EXTRAS
        ),
    )


def dependencies() -> Finding:
    """Every distribution that mlcbuild's own metadata require, and the versions that they pin."""
    try:
        required = importlib.metadata.requires("mlcbuild") or []
    except importlib.metadata.PackageNotFoundError:
        return problem("mlcbuild has no metadata here", "install it: python -m pip install mlcbuild")
    installed = Distributions(JsonCache(None, kind="doctor"))
    lacking, wrong = [], []
    needed = [_NAME.match(line) for line in required if "extra ==" not in line]
    for found in needed:
        assert found is not None
        there = installed.find(found[1])
        if there is None:
            lacking.append(found[1])
        elif found[2] and there.version != found[2]:
            wrong.append(f"{found[1]} {there.version} (needed: {found[2]})")
    if lacking or wrong:
        told = [f"not installed: {', '.join(lacking)}"] * bool(lacking)
        told += [f"of another version: {', '.join(wrong)}"] * bool(wrong)
        return problem("; ".join(told), "install mlcbuild again, with its dependencies: python -m pip install mlcbuild")
    return ok(f"all {len(needed)} installed", count=len(needed))


def tvm_versions() -> Finding:
    """Raises LocalEnvironmentError for versions that do not go together."""
    toolchains = Toolchains()
    toolchains.check_tvm_ffi()
    found = {name: toolchains.distributions.find(name) for name in TVM_DISTRIBUTIONS}
    versions = {name: item.version if item else "" for name, item in found.items()}
    return ok(", ".join(f"{name} {version}" for name, version in versions.items()), **versions)


def tvm_compiles(program: str = _TVM_PROGRAM) -> Finding:
    """Imports, writes and reads IR, compiles, links, loads and runs a function of one line."""
    try:
        linker = str(find_program("ld"))
    except LocalEnvironmentError:
        linker = ""
    child = run_python(program, linker, seconds=TVM_SECONDS)
    if child.ended:
        return problem(f"compiling a function of one line {child.ended}", *_tvm_advice())
    imported, whole = _number(child.told, "import_seconds"), _number(child.told, "seconds")
    done = "compiled, linked and ran" if child.told.get("ran") else "compiled, and for lack of a linker did not run"
    return ok(
        f"imported in {duration(imported)}; {done} a function: {duration(whole)} in all",
        import_seconds=imported,
        seconds=whole,
    )


def cuda_compiles() -> Finding:
    try:
        Toolchains().check(CUDA_DISTRIBUTIONS)
    except LocalEnvironmentError as error:
        return skipped(f"{error.message}", *error.advice)
    child = run_python(_CUDA_PROGRAM, seconds=_CUDA_SECONDS)
    if child.ended:
        advice = 'run: python -m pip install --force-reinstall "mlcbuild[cuda]"'
        return problem(f"compiling a kernel for sm_90 {child.ended}", advice)
    seconds = _number(child.told, "seconds")
    return ok(f"compiled a kernel for sm_90 in {duration(seconds)}", seconds=seconds)


def gpu() -> Finding:
    """For who runs what was built: building needs none."""
    child = run_python(_GPU_PROGRAM, seconds=_EXTRA_SECONDS)
    code, names = child.told.get("code"), child.told.get("names")
    if child.ended or code is None or not isinstance(names, list):
        return skipped("no driver; building for GPUs needs neither driver nor GPU")
    if code or not names:
        return skipped(f"a driver, and no GPU that answers (code {code}); building for GPUs needs none")
    version = int(_number(child.told, "version"))
    shown = ", ".join(dict.fromkeys(str(name) for name in names))
    return ok(f"{len(names)} × {shown}, driver for CUDA {version // 1000}.{version % 1000 // 10}", count=len(names))


def extra(name: str) -> Finding:
    module, extra_name, purpose = EXTRAS[name]
    found = Distributions(JsonCache(None, kind="doctor")).find(name)
    if found is None:
        return skipped("not installed", f'for {purpose}: python -m pip install "mlcbuild[{extra_name}]"')
    child = run_python(f"import {module}", seconds=_EXTRA_SECONDS)
    if child.ended:
        return problem(
            f"{found.version}: its import {child.ended}", f"run: python -m pip install --force-reinstall {name}"
        )
    return ok(found.version, version=found.version)


def _tvm_advice() -> tuple[str, ...]:
    try:
        Toolchains().check_tvm_ffi()
    except LocalEnvironmentError as error:
        return (error.message, *error.advice)
    return ("install tvm again: python -m pip install --force-reinstall apache-tvm apache-tvm-ffi",)


def _number(told: object, name: str) -> float:
    value = told.get(name) if hasattr(told, "get") else None
    return float(value) if isinstance(value, int | float) else 0.0
