"""Which fork server an action is forked from: one that holds what the action would import, and no more."""

from __future__ import annotations

import re
from pathlib import Path

from mlcbuild.engine.action import StageCall
from mlcbuild.engine.executor import ExecutionRequest

BARE: tuple[str, ...] = ()  # for tools and fetches
NUMERIC = ("numpy",)
COMPILER = ("numpy", "tvm", "tvm.relax", "tvm.s_tir", "tvm.relax.frontend.nn")
# tvm imports torch where there is one: 3 s, 200 MB, and a difference between machines.
HIDDEN = ("torch",)

_IMPORTS_TVM = re.compile(rb"^\s*(?:import|from)\s+(?:tvm|tvm_ffi)\b", re.MULTILINE)


class Warmth:
    """Chooses by reading sources: a stage whose closure nowhere says `import tvm` does not wait for it.

    A wrong guess costs time only: the child imports what it lacks.
    """

    def __init__(self, module_paths: tuple[Path, ...] = ()) -> None:
        self._roots = (Path(__file__).parents[2], *module_paths)
        self._imports_tvm: dict[str, bool] = {}

    def preload(self, request: ExecutionRequest) -> tuple[str, ...]:
        call = request.command
        if not isinstance(call, StageCall) or request.requirements.network:
            return BARE
        modules = request.allowed_modules | {call.function.partition(":")[0]}
        return COMPILER if any(self._needs_tvm(module) for module in modules) else NUMERIC

    def _needs_tvm(self, module: str) -> bool:
        if module not in self._imports_tvm:
            source = self._source(module)
            self._imports_tvm[module] = source is not None and bool(_IMPORTS_TVM.search(source))
        return self._imports_tvm[module]

    def _source(self, module: str) -> bytes | None:
        relative = Path(*module.split("."))
        for root in self._roots:
            for file in (root / relative.with_suffix(".py"), root / relative / "__init__.py"):
                if file.is_file():
                    return file.read_bytes()
        return None
