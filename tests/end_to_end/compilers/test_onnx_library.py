"""ONNX models by this pipeline: right numbers, our schedules, and what an edit runs."""

from __future__ import annotations

import pytest

from tests.end_to_end.compilers.compiler_world import BOUND, MODELS, CompilerWorld, ran
from tests.end_to_end.compilers.every_compiler import compare_all, every_compiler_world, measured

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CompilerWorld:
    return every_compiler_world(tmp_path_factory.mktemp("ours"), "mlcbuild")


@pytest.mark.parametrize("model", MODELS)
def test_a_library_of_ours_computes_what_float64_does(world: CompilerWorld, model: str) -> None:
    compare_all(world, model, ("mlcbuild",), rounds=1, seconds=0.02, threads=1)
    done = world.build(f"//:{model}-compared")
    assert done.code == 0, done.err
    (found,) = measured(world, model)["models"]
    assert "failure" not in found, found
    assert found["compiler"] == "mlcbuild on TVM"
    (case,) = found["cases"]
    assert case["error"] < BOUND
    assert case["largest"] > 0.1


def test_weights_compile_nothing(world: CompilerWorld) -> None:
    """An edit of weights imports the model, and ends where the graph is the same."""
    assert world.build("//:mlp-mlcbuild").code == 0
    before = world.output("mlp-mlcbuild/model.so").read_bytes()
    weights = world.output("mlp-mlcbuild/weights.npz").read_bytes()
    world.edit("mlp-source", seed=2)
    done = world.build("//:mlp-source", "//:mlp", "//:mlp-mlcbuild")
    assert ran(done) == {"mlp-source", "mlp", "mlp-mlcbuild"}
    assert done.actions["executed_local"] == 3, done.actions
    assert world.output("mlp-mlcbuild/model.so").read_bytes() == before
    assert world.output("mlp-mlcbuild/weights.npz").read_bytes() != weights
    world.edit("mlp-source", seed=1)


def test_sizes_may_be_open(world: CompilerWorld) -> None:
    world.table("onnx_model", "open", source=":mlp-source", environment=":onnxruntime")
    world.table("onnx_library", "open-mlcbuild", model=":open", environment=":tvm", platform=":here")
    compare_all(world, "open", ("mlcbuild",), rounds=1, seconds=0.02, threads=1, sizes={"batch": [1, 8]})
    done = world.build("//:open-compared")
    assert done.code == 0, done.err
    (found,) = measured(world, "open")["models"]
    assert [case["size"] for case in found["cases"]] == [1, 8]
    assert all(case["error"] < BOUND for case in found["cases"])


def test_libraries_of_ours_are_the_same_in_another_surrounding(world: CompilerWorld) -> None:
    names = [f"//:{model}-mlcbuild" for model in MODELS]
    done = world.build("--check-determinism", "--keep-going", *names)
    assert done.code == 0, done.err
