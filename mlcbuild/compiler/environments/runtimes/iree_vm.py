"""IREE: a module for processors, alone, or with weights.npz beside it, which are its first arguments by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def prepare(threads: int) -> None:
    from iree import runtime

    if threads > 1:
        runtime.flags.parse_flags(f"--task_topology_max_group_count={threads}")


def load(
    artifact: Path, inputs: Sequence[str], outputs: Sequence[str], threads: int
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    import numpy as np
    from iree import runtime

    context = runtime.SystemContext(config=runtime.Config("local-task" if threads > 1 else "local-sync"))
    weights: list[Any] = []
    if artifact.is_dir():
        with np.load(artifact / "weights.npz") as opened:
            weights = [runtime.asdevicearray(context.config.device, opened[name]) for name in sorted(opened)]
        artifact /= "model.vmfb"
    module = runtime.VmModule.copy_buffer(context.instance, artifact.read_bytes())
    context.add_vm_module(module)
    functions = context.modules[module.name]
    (name,) = [each for each in functions.vm_module.function_names if not each.startswith("__") and "$" not in each]
    function = functions[name]

    def call(arrays: dict[str, Any]) -> dict[str, Any]:
        made = function(*weights, *(arrays[each] for each in inputs))
        made = made if isinstance(made, tuple | list) else (made,)
        return {each: np.asarray(value) for each, value in zip(outputs, made, strict=True)}

    return call
