"""Distributions that are installed for this Python: their metadata, then an import in a separate process."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence

from mlcbuild.doctor.check import Check
from mlcbuild.doctor.children import run_python
from mlcbuild.doctor.finding import Finding, failed, ok, skipped
from mlcbuild.engine.distributions import Distributions, install_again
from mlcbuild.engine.json_cache import JsonCache

_EXTRA_SECONDS = 30.0
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:==\s*([0-9][A-Za-z0-9.]*))?")
# Distribution → the module to import, the extra that installs it, and what needs it.
EXTRAS = {
    "boto3": ("boto3", "s3", "remote caches in buckets, and s3_file"),
    "grpcio": ("grpc", "grpc", "remote caches over gRPC"),
    "cryptography": ("cryptography.hazmat.primitives.asymmetric.ed25519", "signing", "signed results"),
    "securesystemslib": ("securesystemslib.dsse", "release", "releases"),
}

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
        Check(name="GPU", examine=gpu, seconds=_EXTRA_SECONDS + 5),
        *(
            Check(name=name, examine=lambda name=name: extra(name), seconds=_EXTRA_SECONDS + 5)  # type: ignore[misc]
            for name in EXTRAS
        ),
    )


def dependencies() -> Finding:
    """Whether every distribution in mlcbuild's metadata is installed in the pinned version."""
    try:
        required = importlib.metadata.requires("mlcbuild") or []
    except importlib.metadata.PackageNotFoundError:
        return failed("mlcbuild has no metadata", "install it again, from its wheel or its checkout")
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
        measured = [f"not installed: {', '.join(lacking)}"] * bool(lacking)
        measured += [f"wrong version: {', '.join(wrong)}"] * bool(wrong)
        return failed("; ".join(measured), "reinstall mlcbuild with its dependencies: python -m pip install mlcbuild")
    return ok(f"all {len(needed)} installed", count=len(needed))


def gpu() -> Finding:
    """A GPU to run what was built; building needs none."""
    child = run_python(_GPU_PROGRAM, seconds=_EXTRA_SECONDS)
    code, names = child.document.get("code"), child.document.get("names")
    if child.ended or code is None or not isinstance(names, list):
        return skipped("no driver; building for GPUs needs neither driver nor GPU")
    if code or not names:
        return skipped(f"a driver, but no GPU that answers (code {code}); building for GPUs needs none")
    version = int(_number(child.document, "version"))
    shown = ", ".join(dict.fromkeys(str(name) for name in names))
    return ok(f"{len(names)} × {shown}, driver for CUDA {version // 1000}.{version % 1000 // 10}", count=len(names))


def extra(name: str) -> Finding:
    module, extra_name, purpose = EXTRAS[name]
    found = Distributions(JsonCache(None, kind="doctor")).find(name)
    if found is None:
        return skipped("not installed", f'for {purpose}: python -m pip install "mlcbuild[{extra_name}]"')
    child = run_python(f"import {module}", seconds=_EXTRA_SECONDS)
    if child.ended:
        return failed(f"{found.version}: its import {child.ended}", install_again(found))
    return ok(found.version, version=found.version)


def _number(measured: object, name: str) -> float:
    value = measured.get(name) if hasattr(measured, "get") else None
    return float(value) if isinstance(value, int | float) else 0.0
