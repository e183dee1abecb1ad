"""What a fork server is asked to run, as the JSON object that its child reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import mlcbuild
from mlcbuild.engine.action import StageCall
from mlcbuild.engine.executor import ExecutionRequest
from mlcbuild.execution import environment


def child_request(
    request: ExecutionRequest,
    directory: Path,
    *,
    variables: Mapping[str, str],
    module_paths: Sequence[Path],
    bytecode: Path,
) -> dict[str, object]:
    """The request for an action in its directory.

    `variables` replace some of the fixed ones. `module_paths` are the roots of workspaces whose stages may run, and
    `bytecode` is the folder for what their sources compile to.
    """
    actual = (
        environment.of_network_action(request.environment)
        if request.requirements.network
        else environment.of_action(request.environment, directory, variables)
    )
    body: dict[str, object] = {"directory": str(directory), "environment": actual}
    call = request.command
    if not isinstance(call, StageCall):
        return {**body, "arguments": call.arguments}
    roots = [str(path) for path in module_paths]
    return {
        **body,
        "package_root": str(Path(mlcbuild.__file__).parents[1]),
        "module_paths": roots,
        "module_names": sorted(_workspace_packages(request, call)),
        "bytecode": str(bytecode),
        "call": {
            "function": call.function,
            "inputs": call.inputs,
            "groups": call.groups,
            "outputs": call.outputs,
            "parameters": dict(call.parameters),
            "plugins": call.plugins,
            "hints": dict(request.requirements.execution_hints),
            "module_paths": roots,
        },
    }


def _workspace_packages(request: ExecutionRequest, call: StageCall) -> set[str]:
    """The top-level names of the workspace's modules in a stage's closure."""
    modules = request.allowed_modules.union(call.modules)
    return {module.partition(".")[0] for module in modules} - {mlcbuild.__name__}
