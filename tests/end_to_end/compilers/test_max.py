"""MAX in its environment, whose licence whoever runs these tests accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.compilers.compiler_world import BOUND, MODELS, CompilerWorld, ran
from tests.end_to_end.compilers.every_compiler import compare_all, every_compiler_world, measured

pytestmark = pytest.mark.exhaustive


def max_model(world: CompilerWorld, name: str, **more: str) -> None:
    model = name.partition("-")[0]
    wanted = {
        "source": "max_models.py",
        "weights": f":{model}-source",
        "environment": ":max",
        "function": model,
        **more,
    }
    world.table("max_model", name, **wanted)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CompilerWorld:
    world = every_compiler_world(tmp_path_factory.mktemp("max"), "max")
    for model in MODELS:
        max_model(world, f"{model}-max")
    return world


@pytest.mark.parametrize("model", MODELS)
def test_max_computes_what_float64_does(world: CompilerWorld, model: str) -> None:
    compare_all(world, model, ("max",), rounds=1, seconds=0.02, threads=1)
    done = world.build(f"//:{model}-compared")
    assert done.code == 0, done.err
    (found,) = measured(world, model)["models"]
    assert "failure" not in found, found
    assert (found["compiler"], found["version"]) == ("MAX", "26.6.0")
    (case,) = found["cases"]
    assert case["error"] < BOUND
    assert case["largest"] > 0.1


def test_weights_compile_nothing(world: CompilerWorld) -> None:
    assert world.build("//:mlp-max").code == 0
    compiled = world.output("mlp-max/model.mef").read_bytes()
    world.edit("mlp-source", seed=2)
    assert ran(world.build("//:mlp-max")) == {"mlp-max"}, "its weights are checked"
    assert world.output("mlp-max/model.mef").read_bytes() == compiled


def test_what_makes_no_graph_is_told(world: CompilerWorld) -> None:
    max_model(world, "wrong", function="nothing", weights=":mlp-source")
    done = world.build("//:wrong")
    assert done.code == 1
    assert "nothing of max_models.py returns no graph and weights" in done.err


def test_a_licence_that_nobody_accepts_is_told_at_load(tmp_path: Path) -> None:
    world = every_compiler_world(tmp_path, "max")
    world.edit("max", accept_license=[])
    done = world.build("//:max")
    assert done.code != 0
    assert "LicenseRef-MAX-Platform-Software-License" in done.err
