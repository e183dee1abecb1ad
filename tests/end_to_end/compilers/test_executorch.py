"""ExecuTorch in its environment, from programs of torch.export."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.compilers.compiler_world import BOUND, MODELS, CompilerWorld, ran

pytestmark = pytest.mark.exhaustive


def compiler_world(folder: Path) -> CompilerWorld:
    """Each model as MODEL-torch, its program MODEL-exported, and MODEL-executorch; the MLP by portable kernels too."""
    world = CompilerWorld(folder, "executorch")
    for model in MODELS:
        world.table(
            "torch_model",
            f"{model}-torch",
            source="torch_models.py",
            function=model,
            weights=f":{model}-source",
            environment=":executorch",
        )
        world.table("torch_exported_program", f"{model}-exported", model=f":{model}-torch", environment=":executorch")
        lowered(world, f"{model}-executorch", model)
    lowered(world, "mlp-portable", "mlp", backend="portable")
    return world


def lowered(world: CompilerWorld, name: str, model: str, **more: str) -> None:
    world.table("executorch_program", name, program=f":{model}-exported", environment=":executorch", **more)
    world.compared(name, model, environment=":executorch", runtime="executorch", ending=".pte")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CompilerWorld:
    return compiler_world(tmp_path_factory.mktemp("executorch"))


@pytest.mark.parametrize("name", [*(f"{model}-executorch" for model in MODELS), "mlp-portable"])
def test_executorch_computes_what_float64_does(world: CompilerWorld, name: str) -> None:
    done = world.build(f"//:{name}-error")
    assert done.code == 0, done.err
    assert world.error(name) < BOUND


def test_what_an_edit_runs(world: CompilerWorld) -> None:
    wanted = ("//:mlp-executorch", "//:layer-executorch")
    assert world.build(*wanted).code == 0
    assert ran(world.build(*wanted)) == set()
    world.table("written", "mlp-source", kind="mlp", seed=2, environment=":onnxruntime")
    assert ran(world.build(*wanted)) == {"mlp-executorch"}, "weights are in the program"
    lowered(world, "mlp-executorch", "mlp", backend="portable")
    assert ran(world.build(*wanted)) == {"mlp-executorch"}, "another backend"


def test_the_same_bytes_in_another_surrounding(world: CompilerWorld) -> None:
    """The action runs twice, in other folders and with other variables."""
    done = world.build("--check-determinism", "//:layer-executorch")
    assert done.code == 0, done.err
