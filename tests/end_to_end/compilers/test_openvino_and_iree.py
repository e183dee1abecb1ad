"""OpenVINO and IREE, each in its environment, from pip's index: right numbers, other devices, and equal bytes."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.end_to_end.compilers.compiler_world import BOUND, HERE_LEVEL, MODELS, CompilerWorld, ran

DEVICES = {
    "cuda": {"cuda_target": "sm_80"},
    "hip": {"hip_target": "gfx942"},
    "vulkan": {"vulkan_target": "ampere"},
    "metal": {"metal_target": "macos"},
    "arm": {"cpu": "neoverse-n1", "host": "aarch64-linux-gnu"},
}


def compiler_world(folder: Path) -> CompilerWorld:
    """Each model by OpenVINO in both forms and by IREE for this processor: MODEL-ir, MODEL-blob, MODEL-iree."""
    world = CompilerWorld(folder, "openvino", "iree")
    for model in MODELS:
        for form, ending in {"ir": "", "blob": ".blob"}.items():
            name = f"{model}-{form}"
            world.table("openvino_model", name, model=f":{model}", environment=":openvino", form=form)
            world.compared(name, model, environment=":openvino", runtime="openvino", ending=ending)
        name = f"{model}-iree"
        world.table("iree_module", name, model=f":{model}", environment=":iree", cpu=HERE_LEVEL)
        world.compared(name, model, environment=":iree", runtime="iree", ending=".vmfb")
    for device, attributes in DEVICES.items():
        world.table("iree_module", f"layer-{device}", model=":layer", environment=":iree", **attributes)
    return world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CompilerWorld:
    return compiler_world(tmp_path_factory.mktemp("compilers"))


@pytest.mark.parametrize(
    "name",
    [
        "layer-ir",
        "layer-blob",
        "layer-iree",
        *(
            pytest.param(f"{model}-{form}", marks=pytest.mark.exhaustive)
            for model in ("mlp", "block")
            for form in ("ir", "blob", "iree")
        ),
    ],
)
def test_its_own_runtime_computes_what_float64_does(world: CompilerWorld, name: str) -> None:
    done = world.build(f"//:{name}-error")
    assert done.code == 0, done.err
    assert world.error(name) < BOUND


def test_another_processor_compiles_that_module_alone(world: CompilerWorld) -> None:
    wanted = ("//:layer-iree", "//:layer-ir", "//:layer-blob")
    assert world.build(*wanted).code == 0
    before = world.output("layer-iree/model.vmfb").read_bytes()
    other = "x86-64-v2" if HERE_LEVEL != "x86-64-v2" else "x86-64"
    world.table("iree_module", "layer-iree", model=":layer", environment=":iree", cpu=other)
    assert ran(world.build(*wanted)) == {"layer-iree"}
    assert world.output("layer-iree/model.vmfb").read_bytes() != before
    world.table("iree_module", "layer-iree", model=":layer", environment=":iree", cpu=HERE_LEVEL)
    assert world.build(*wanted).code == 0
    assert world.output("layer-iree/model.vmfb").read_bytes() == before


def test_builds_of_one_model_side_by_side(world: CompilerWorld) -> None:
    """By three runtimes, at two sizes. What a build was not made for is told, and costs the others nothing."""
    world.table("onnx_model", "eight", source=":mlp-source", environment=":onnxruntime", sizes={"batch": 8})
    world.table("ort_model", "fixed", model=":eight", environment=":onnxruntime")
    world.table(
        "compile_comparison",
        "compared",
        model=":mlp",
        builds=[":mlp-ir", ":mlp-iree", ":fixed"],
        environment=":onnxruntime",
        sizes={"batch": [1, 8]},
        rounds=2,
        seconds=0.02,
        threads=1,
    )
    chart, table = world.folder / "chart.svg", world.folder / "table.md"
    written = ("--svg", str(chart), "--markdown", str(table))
    done = world.mlcbuild("compare", "//:compared", "--output", "json", *written)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["label"], found["rounds"], found["threads"]) == ("//:compared", 2, 1)
    openvino, iree, fixed = found["builds"]
    assert [each["label"] for each in (openvino, iree, fixed)] == ["//:mlp-ir", "//:mlp-iree", "//:fixed"]
    assert (openvino["compiler"], openvino["version"]) == ("OpenVINO", "2026.4.1")
    for each in (openvino, iree):
        assert each["bytes"] > 4 * (64 * 256 + 256 * 64), "its weights"
        assert each["peak_bytes"] > 20 << 20
        assert each["load_seconds"] > 0
        assert each["cached_seconds"] > 0
        assert [case["size"] for case in each["cases"]] == [1, 8]
        for case in each["cases"]:
            assert case["error"] < BOUND
            assert case["largest"] > 0.1, "an output of nearly nothing would prove nothing"
            assert 0 < case["seconds"] <= 1
            assert case["calls"] >= 10
    assert fixed["compile_seconds"] > 0, "it was compiled just now"
    assert "Got: 1 Expected: 8" in fixed["cases"][0]["failure"]
    assert fixed["cases"][1]["error"] < BOUND
    assert "| //:mlp-iree | 8 |" in table.read_text()
    assert "- //:fixed at 1: InvalidArgument" in table.read_text()
    assert len(ElementTree.parse(chart).getroot().findall("{http://www.w3.org/2000/svg}rect")) == 1 + 5

    assert ran(world.build("//:compared")) == set()
    # What is set for the comparison alone is no attribute of what its builds need.
    more = world.mlcbuild("compare", "//:compared", "--set", "//:compared.rounds=1", "--output", "json")
    assert more.code == 0, more.err
    assert json.loads(more.out)["rounds"] == 1
    # A build that changes is measured again, beside all others.
    world.table("ort_model", "fixed", model=":eight", environment=":onnxruntime", level="basic")
    assert ran(world.build("//:compared", "//:fixed")) == {"fixed", "compared"}


@pytest.mark.exhaustive
def test_a_device_that_iree_does_not_know_is_told_in_its_words(world: CompilerWorld) -> None:
    world.table("iree_module", "wrong", model=":layer", environment=":iree", cuda_target="h100")
    done = world.build("//:wrong")
    assert done.code == 1
    assert "IREE cannot compile the model: " in done.err
    assert "Unknown CUDA target 'h100'" in done.err


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("device", "code"),
    [
        ("cuda", b".target sm_80"),
        ("hip", bytes.fromhex("7f454c4602010140")),  # ELF for AMD's GPUs
        ("vulkan", b"\x03\x02\x23\x07"),
        ("metal", b"#include <metal_stdlib>"),
        ("arm", bytes.fromhex("7f454c46020101000000000000000000 0300b700")),  # a shared library for AArch64
    ],
)
def test_modules_for_devices_that_this_machine_does_not_have(world: CompilerWorld, device: str, code: bytes) -> None:
    done = world.build(f"//:layer-{device}")
    assert done.code == 0, done.err
    assert code in world.output(f"layer-{device}/model.vmfb").read_bytes()


@pytest.mark.exhaustive
def test_the_same_bytes_in_another_surrounding(world: CompilerWorld) -> None:
    """Each action runs twice, in other folders and with other variables."""
    names = [f"{model}-{form}" for model in MODELS for form in ("ir", "blob", "iree")]
    names += [f"layer-{device}" for device in DEVICES]
    done = world.build("--check-determinism", "--keep-going", *(f"//:{name}" for name in names))
    assert done.code == 0, done.err
