"""Which fork server an action is forked from: one that holds what the action would import, and no more."""

from __future__ import annotations

import re
from pathlib import Path

from mlcbuild.engine.action import StageCall
from mlcbuild.engine.executor import ExecutionRequest

BARE: tuple[str, ...] = ()  # for tools, fetches, and stages that move JSON
NUMERIC = ("numpy",)
COMPILER = ("numpy", "tvm", "tvm.relax", "tvm.s_tir", "tvm.relax.frontend.nn.llm.kv_cache")
# tvm imports torch where there is one: 3 s, 200 MB, and a difference between machines.
HIDDEN = ("torch",)

_IMPORTS = re.compile(rb"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)
_WANTED_BY = ((COMPILER, {b"tvm", b"tvm_ffi"}), (NUMERIC, {b"numpy", b"gguf", b"safetensors", b"ml_dtypes"}))


class Warmth:
    """Chooses by reading sources: a stage whose closure nowhere says `import tvm` does not wait for it.

    A wrong guess costs time only: the child imports what it lacks.
    """

    def __init__(self, module_paths: tuple[Path, ...] = ()) -> None:
        self._roots = (Path(__file__).parents[2], *module_paths)
        self._imports: dict[str, frozenset[bytes]] = {}

    def preload(self, request: ExecutionRequest) -> tuple[str, ...]:
        """The modules that the request's server should hold."""
        call = request.command
        if not isinstance(call, StageCall) or request.requirements.network:
            return BARE
        modules = request.allowed_modules.union(call.modules)
        imports = frozenset[bytes]().union(*(self._imports_of(module) for module in modules))
        return next((preload for preload, wanted in _WANTED_BY if wanted & imports), BARE)

    def _imports_of(self, module: str) -> frozenset[bytes]:
        if module not in self._imports:
            self._imports[module] = frozenset(_IMPORTS.findall(self._source(module)))
        return self._imports[module]

    def _source(self, module: str) -> bytes:
        relative = Path(*module.split("."))
        for root in self._roots:
            for file in (root / relative.with_suffix(".py"), root / relative / "__init__.py"):
                if file.is_file():
                    return file.read_bytes()
        return b""
