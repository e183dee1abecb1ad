"""ONNX Runtime in its environment, from pip's index: right numbers, equal bytes, and what an edit runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlcbuild.toolchains.entries import processor
from tests.end_to_end.compilers.compiler_world import BOUND, MODELS, CompilerWorld, ran
from tests.end_to_end.compilers.compiler_world import HERE_LEVEL as HERE


def compiler_world(folder: Path) -> CompilerWorld:
    """Each model in both formats, MODEL-onnx and MODEL-ort, at the level all; and one of a level for all processors."""
    world = CompilerWorld(folder)
    for model in MODELS:
        for form in ("onnx", "ort"):
            name = f"{model}-{form}"
            world.table("ort_model", name, model=f":{model}", environment=":onnxruntime", format=form)
            world.compared(name, model, environment=":onnxruntime", runtime="onnxruntime", ending=f".{form}")
    world.table("ort_model", "portable", model=":mlp", environment=":onnxruntime", level="extended")
    return world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CompilerWorld:
    return compiler_world(tmp_path_factory.mktemp("onnxruntime"))


@pytest.mark.parametrize(
    "name",
    [
        "mlp-ort",
        "layer-onnx",
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in ("mlp-onnx", "layer-ort", "block-onnx", "block-ort")
        ),
    ],
)
def test_its_own_runtime_computes_what_float64_does(world: CompilerWorld, name: str) -> None:
    done = world.build(f"//:{name}-error")
    assert done.code == 0, done.err
    assert world.error(name) < BOUND


def test_what_an_edit_runs(world: CompilerWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = ("//:portable", "//:mlp-ort", "//:layer-onnx")
    assert world.build(*wanted).code == 0
    assert ran(world.build(*wanted)) == set()

    world.table("written", "mlp-source", kind="mlp", seed=2, environment=":onnxruntime")
    assert ran(world.build(*wanted)) == {"portable", "mlp-ort"}, "other weights of one model"

    sizes = {"batch": 8}
    world.table("onnx_model", "mlp", source=":mlp-source", environment=":onnxruntime", sizes=sizes)
    assert ran(world.build(*wanted)) == {"portable", "mlp-ort"}, "another shape"

    world.table("ort_model", "portable", model=":mlp", environment=":onnxruntime", level="basic")
    assert ran(world.build(*wanted)) == {"portable"}, "another level"

    weaker = tmp_path / "cpuinfo"
    weaker.write_text("flags\t\t: fpu cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3\n")
    monkeypatch.setattr(processor, "CPUINFO", weaker)
    # What a machine is does not change under a workspace, and so is not looked at where nothing else has changed.
    world.output("mlp-ort/model.ort").unlink()
    assert ran(world.build(*wanted)) == {"mlp-ort", "layer-onnx"}, "the level all is for processors of one level"


def test_a_level_that_this_machine_does_not_have_is_told_before_anything_runs(world: CompilerWorld) -> None:
    other = "x86-64-v2" if HERE != "x86-64-v2" else "x86-64-v3"
    world.table("ort_model", "other", model=":mlp", environment=":onnxruntime", processor=other)
    done = world.build("//:other")
    assert done.code != 0
    assert f"an action is for processors of the level {other}, and this machine has {HERE}" in done.err


@pytest.mark.exhaustive
def test_the_same_bytes_in_another_surrounding(world: CompilerWorld) -> None:
    """Each action runs twice, in other folders and with other variables."""
    done = world.build("--check-determinism", "//:mlp-onnx", "//:layer-onnx")
    assert done.code == 0, done.err


@pytest.mark.exhaustive
def test_a_convolution_gets_the_layout_of_the_processor(world: CompilerWorld) -> None:
    if HERE not in ("x86-64-v3", "x86-64-v4"):
        pytest.skip("a processor without vectors has no layout of its own")
    assert world.build("//:block", "//:block-onnx").code == 0
    assert b"nchwc" not in world.output("block/model.onnx").read_bytes()
    assert b"nchwc" in world.output("block-onnx/model.onnx").read_bytes()


@pytest.mark.exhaustive
def test_equal_bytes_from_empty_caches_in_two_folders(tmp_path: Path) -> None:
    files = [f"{model}-onnx/model.onnx" for model in MODELS]
    worlds = [compiler_world(tmp_path / name) for name in ("one", "other")]
    for each in worlds:
        assert each.build(*(f"//:{file.partition('/')[0]}" for file in files)).code == 0
    for file in files:
        assert worlds[0].output(file).read_bytes() == worlds[1].output(file).read_bytes(), file


@pytest.mark.exhaustive
def test_a_cold_comparison_measures_what_it_has_compiled_again(tmp_path: Path) -> None:
    """The bytes of this format differ from run to run."""
    world = compiler_world(tmp_path)
    world.table(
        "compile_comparison",
        "compared",
        model=":layer",
        builds=[":layer-ort"],
        environment=":onnxruntime",
        rounds=1,
        seconds=0.02,
        threads=1,
    )
    done = world.mlcbuild("compare", "//:compared", "--cold", "--output", "json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)["builds"]
    assert found["compile_seconds"] > 0
    assert ran(world.build("//:compared")) == set()
