"""Which modules the fork server of an action holds: those that the action's toolchains and imports need."""

from __future__ import annotations

from mlcbuild.engine.action import StageCall
from mlcbuild.engine.executor import ExecutionRequest
from mlcbuild.toolchains.table import every

# tvm imports torch if it is installed. That takes 3 s and 200 MB, and makes machines differ.
HIDDEN = ("torch",)


class Preloads:
    """Actions with equal answers share a server. A wrong answer costs only time: the child imports what it lacks."""

    def __init__(self) -> None:
        self._toolchains = every()

    def of(self, request: ExecutionRequest) -> tuple[str, ...]:
        """Module names, sorted; () for tools, fetches, and stages that need nothing preloaded."""
        if not isinstance(request.command, StageCall) or request.requirements.network:
            return ()
        imported = frozenset(request.distributions)
        wanted = {
            module
            for toolchain in self._toolchains
            if toolchain.name in request.toolchains or imported.intersection(toolchain.preloaded_for)
            for module in toolchain.preload
        }
        return tuple(sorted(wanted))
