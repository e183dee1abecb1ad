"""One model by every compiler that a comparison can run here, from whichever file each of them reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.end_to_end.compilers.compiler_world import HERE_LEVEL, MODELS, CompilerWorld

COMPILERS = ("onnxruntime", "openvino", "iree", "tvm", "metaschedule", "mlcbuild", "torch", "aoti", "executorch", "xla")
# The environments of those that are called by another name.
_LOCKS = {
    "metaschedule": ("tvm",),
    "mlcbuild": ("tvm",),
    "aoti": ("torch",),
    "xla": ("jax",),
    "iree-of-stablehlo": ("jax", "iree"),
}
_LEVEL = HERE_LEVEL if HERE_LEVEL in ("x86-64-v3", "x86-64-v4") else "x86-64-v2"


def every_compiler_world(folder: Path, *compilers: str, trials: int = 4) -> CompilerWorld:
    """Each model by each compiler, MODEL-COMPILER. All sizes are fixed: not every compiler takes open ones.

    The models are those of checks/write.py: as ONNX, torch_models.py and jax_models.py, all with the same weights. A
    compiler that is not among `COMPILERS` has its environment alone.
    """
    locks = [lock for each in compilers for lock in _LOCKS.get(each, (each,)) if lock != "onnxruntime"]
    world = CompilerWorld(folder, *dict.fromkeys(locks))
    world.table("onnx_model", "mlp", source=":mlp-source", environment=":onnxruntime", sizes={"batch": 8})
    for model in MODELS:
        for compiler in (each for each in compilers if each in _ADDED):
            _ADDED[compiler](world, model, trials)
    return world


def compare_all(world: CompilerWorld, model: str, compilers: Sequence[str], **more: Any) -> None:
    """The target MODEL-compared."""
    world.table(
        "compile_comparison",
        f"{model}-compared",
        model=f":{model}",
        builds=[f":{model}-{compiler}" for compiler in compilers],
        environment=":onnxruntime",
        **more,
    )


def measured(world: CompilerWorld, model: str) -> dict[str, Any]:
    """What MODEL-compared found."""
    document: dict[str, Any] = json.loads(world.output(f"{model}-compared/measured.json").read_text())
    return document


def _of_onnx(rule: str, compiler: str, **more: str) -> Any:
    def add(world: CompilerWorld, model: str, _trials: int) -> None:
        world.table(rule, f"{model}-{compiler}", model=f":{model}", environment=f":{compiler}", **more)

    return add


def _metaschedule(world: CompilerWorld, model: str, trials: int) -> None:
    common = {"model": f":{model}", "environment": ":tvm", "cpu": HERE_LEVEL}
    world.table("relax_tuning", f"{model}-records", **common, trials=trials)
    world.table("relax_module", f"{model}-metaschedule", **common, records=f":{model}-records")


def _mlcbuild(world: CompilerWorld, model: str, _trials: int) -> None:
    world.table("platform", "here", kind="cpu", cpu=HERE_LEVEL)
    world.table("onnx_library", f"{model}-mlcbuild", model=f":{model}", environment=":tvm", platform=":here")


def _torch_model(world: CompilerWorld, model: str, environment: str) -> None:
    world.table(
        "torch_model",
        f"{model}-of-{environment}",
        source="torch_models.py",
        function=model,
        weights=f":{model}-source",
        environment=f":{environment}",
    )


def _torch(world: CompilerWorld, model: str, _trials: int) -> None:
    _torch_model(world, model, "torch")
    world.table("torch_exported_program", f"{model}-torch", model=f":{model}-of-torch", environment=":torch")


def _aoti(world: CompilerWorld, model: str, _trials: int) -> None:
    _torch_model(world, model, "torch")
    world.table("torch_aoti_library", f"{model}-aoti", model=f":{model}-of-torch", environment=":torch", cpu=_LEVEL)


def _executorch(world: CompilerWorld, model: str, _trials: int) -> None:
    environment = ":executorch"
    _torch_model(world, model, "executorch")
    world.table("torch_exported_program", f"{model}-exported", model=f":{model}-of-executorch", environment=environment)
    world.table("executorch_program", f"{model}-executorch", program=f":{model}-exported", environment=environment)


def _stablehlo(world: CompilerWorld, model: str) -> None:
    world.table(
        "stablehlo_module",
        f"{model}-stablehlo",
        source="jax_models.py",
        function=model,
        weights=f":{model}-source",
        environment=":jax",
    )


def _xla(world: CompilerWorld, model: str, _trials: int) -> None:
    _stablehlo(world, model)
    world.table("xla_executable", f"{model}-xla", model=f":{model}-stablehlo", environment=":jax")


def _iree_of_stablehlo(world: CompilerWorld, model: str, _trials: int) -> None:
    _stablehlo(world, model)
    common = {"environment": ":iree", "cpu": HERE_LEVEL}
    world.table("iree_module", f"{model}-iree-of-stablehlo", model=f":{model}-stablehlo", **common)


_ADDED = {
    "onnxruntime": _of_onnx("ort_model", "onnxruntime"),
    "openvino": _of_onnx("openvino_model", "openvino", form="ir"),
    "iree": _of_onnx("iree_module", "iree", cpu=HERE_LEVEL),
    "tvm": _of_onnx("relax_module", "tvm", cpu=HERE_LEVEL),
    "metaschedule": _metaschedule,
    "mlcbuild": _mlcbuild,
    "torch": _torch,
    "aoti": _aoti,
    "executorch": _executorch,
    "xla": _xla,
    "iree-of-stablehlo": _iree_of_stablehlo,
}
