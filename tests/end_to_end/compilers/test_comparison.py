"""compile_comparison: every compiler's build of one model, each run by its own runtime, side by side."""

from __future__ import annotations

from typing import Any

import pytest

from tests.end_to_end.compilers.compiler_world import BOUND, MODELS, CompilerWorld, ran
from tests.end_to_end.compilers.every_compiler import COMPILERS, compare_all, every_compiler_world, measured

pytestmark = pytest.mark.exhaustive
QUICK: dict[str, Any] = {"rounds": 2, "seconds": 0.02, "threads": 1}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CompilerWorld:
    return every_compiler_world(tmp_path_factory.mktemp("compared"), *COMPILERS)


@pytest.mark.parametrize("model", MODELS)
def test_every_compiler_computes_what_float64_does(world: CompilerWorld, model: str) -> None:
    compare_all(world, model, COMPILERS, **QUICK)
    done = world.build(f"//:{model}-compared")
    assert done.code == 0, done.err
    found = measured(world, model)["models"]
    assert [each["label"] for each in found] == [f"//:{model}-{compiler}" for compiler in COMPILERS]
    assert len({each["compiler"] for each in found}) == len(COMPILERS)
    for each in found:
        assert "failure" not in each, each
        for case in each["cases"]:
            assert "failure" not in case, each
            assert case["error"] < BOUND, each
            assert case["largest"] > 0.1


def test_records_that_are_pinned_search_no_more(world: CompilerWorld) -> None:
    """What was measured, copied into the workspace, gives the same library, and so does an edit of weights."""
    assert world.build("//:block-metaschedule").code == 0
    before = world.output("block-metaschedule/model.so").read_bytes()
    world.write("block.json", world.output("block-records/records.json").read_bytes())
    world.edit("block-metaschedule", records="block.json")
    assert ran(world.build("//:block-metaschedule")) == set(), "the same records make the same action"
    assert world.output("block-metaschedule/model.so").read_bytes() == before

    # The kernels of another convolution net are others: these records have none of them.
    world.edit("layer-metaschedule", records="block.json")
    wrong = world.build("//:layer-metaschedule")
    assert wrong.code == 1
    assert "block.json has none of the model's" in wrong.err
    world.write("block.json", "{}")
    wrong = world.build("//:block-metaschedule")
    assert wrong.code == 1
    assert "block.json is no file of relax_tuning's records" in wrong.err
    for model in ("block", "layer"):
        world.edit(f"{model}-metaschedule", records=f":{model}-records")


def test_other_weights_search_for_nothing(world: CompilerWorld) -> None:
    """Of what MetaSchedule is given, shapes and operators are in the key, and no values of weights."""
    assert world.build("//:block-metaschedule").code == 0
    before = world.output("block-metaschedule/model.so").read_bytes()
    world.edit("block-source", seed=2)
    done = world.build("//:block-metaschedule")
    assert done.code == 0, done.err
    executed = {
        each["mnemonic"] for each in done.report["action_results"].values() if each["status"] == "executed_local"
    }
    assert "SearchSchedules" not in executed
    assert {"BlankOnnx", "BuildRelax"} <= executed
    assert world.output("block-metaschedule/model.so").read_bytes() != before
    world.edit("block-source", seed=1)


def test_open_sizes_are_not_searched(world: CompilerWorld) -> None:
    world.table("onnx_model", "open", source=":mlp-source", environment=":onnxruntime")
    world.table("relax_tuning", "open-records", model=":open", environment=":tvm", cpu="x86-64-v3", trials=1)
    done = world.build("//:open-records")
    assert done.code == 1
    assert "MetaSchedule takes fixed sizes alone, and batch is open" in done.err


def test_tvm_makes_equal_bytes_in_another_surrounding(world: CompilerWorld) -> None:
    """With the schedules that it has, and with measured ones."""
    names = [f"{model}-{compiler}" for model in MODELS for compiler in ("tvm", "metaschedule")]
    done = world.build("--check-determinism", "--keep-going", *(f"//:{name}" for name in names))
    assert done.code == 0, done.err


def test_weights_that_the_function_does_not_take_are_told(world: CompilerWorld) -> None:
    world.table(
        "stablehlo_module",
        "wrong",
        source="jax_models.py",
        function="block",
        weights=":mlp-source",
        environment=":jax",
    )
    done = world.build("//:wrong")
    assert done.code == 1
    assert "the weights do not fit the function:" in done.err
    assert "the function takes no b1" in done.err
    assert "w1 is float32 [64, 256], and the function takes float32 [16, 16, 3, 3]" in done.err
