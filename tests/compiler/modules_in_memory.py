"""Stages that hand modules on in memory, for whoever compiles very many small models in one process: writing IR,
reading it again and finding names for kernels that were named before are half of what such a model takes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import tvm
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler.passes import partition_kernels
from mlcbuild.compiler.passes.canonical_kernel import CanonicalKernel, canonicalize

_FILES = frozenset({"export.json", *(f"phase{number}.json" for number in range(4)), "graph.json"})
_NAMED: dict[int, list[tuple[tirx.PrimFunc, CanonicalKernel]]] = {}


@contextlib.contextmanager
def modules_in_memory() -> Iterator[None]:
    """Until the end of the block, a stage of the graph is given the very module that the one before it made, without a
    file, and equal kernels of different models are made canonical once."""
    kept: dict[str, tvm.IRModule] = {}
    write, read = ir.save_module, ir.load_module

    def save(module: tvm.IRModule, path: Path) -> None:
        if path.name in _FILES:
            kept[os.fspath(path)] = module
        else:
            write(module, path)

    def load(path: Path) -> tvm.IRModule:
        name = os.fspath(path)
        return kept[name] if name in kept else read(path)

    try:
        ir.save_module, ir.load_module = save, load
        setattr(partition_kernels, "canonicalize", _canonical_once)  # noqa: B010
        yield
    finally:
        ir.save_module, ir.load_module = write, read
        setattr(partition_kernels, "canonicalize", canonicalize)  # noqa: B010


def _canonical_once(func: tirx.PrimFunc, *, module: tvm.IRModule | None = None) -> CanonicalKernel:
    found = _NAMED.setdefault(tvm_ffi.structural_hash(func), [])
    for other, kernel in found:
        if tvm_ffi.structural_equal(func, other):
            return kernel
    kernel = canonicalize(func, module=module)
    if b'"callee0"' not in kernel.data:  # what it calls is not in its structure
        found.append((func, kernel))
    return kernel
