"""`tensorrt_engine`: all but the run, for which neither its wheels nor a GPU need be here."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.compiler.environments.programs import build_tensorrt
from mlcbuild.engine.action import CachePolicy, StageCall
from mlcbuild.execution.machine_resources import MachineResources, this_machine, unmet_requirement
from tests.compiler.exported_layers import INPUTS, OUTPUTS, export, reference
from tests.compiler.family_cases import CASES
from tests.rules.test_other_compilers import errors, workspace
from tests.rules.world import action, analysed

LOCKED = ("onnx", "tensorrt-cu13", "tensorrt-cu13-bindings", "tensorrt-cu13-libs")
GPU = 'gpu = "sm_90"'


def table(more: str = GPU) -> str:
    return f'[[tensorrt_engine]]\nname = "e"\nmodel = ":model"\nenvironment = ":made"\n{more}\n'


def test_an_engine_is_built_on_a_gpu_of_its_kind_and_its_bytes_are_not_trusted(tmp_path: Path) -> None:
    asked = 'requirements = { timeout = "1h", labels = { zone = "b" } }\nworkspace_mib = 2\n'
    sizes = "sizes = { batch = [1, 8, 32] }"
    found = action(
        analysed(workspace(tmp_path, table(f"{GPU}\n{asked}{sizes}"), locked=LOCKED), "//:e"), "BuildTensorRT"
    )
    assert found.cache is CachePolicy.NON_REPRODUCIBLE
    assert found.requirements.gpus == 1
    assert found.requirements.labels == (("arch", "sm_90"), ("zone", "b"))
    assert found.requirements.timeout_seconds == 3600
    assert isinstance(found.command, StageCall)
    assert dict(found.command.parameters) == {
        "architecture": "sm_90",
        "optimization": 3,
        "runs_on": "same",
        "sizes": {"batch": [1, 8, 32]},
        "tf32": False,
        "workspace_bytes": 2 << 20,
    }
    wanted = "needs 1 GPUs (it has 0), the label arch=sm_90 (it has none), the label zone=b (it has none)"
    assert unmet_requirement(MachineResources(cpus=2), found.requirements) == wanted


@pytest.mark.parametrize(
    ("more", "locked", "told"),
    [
        ('gpu = "h100"', LOCKED, '"h100" is no architecture of a GPU in //:e'),
        ('gpu = "sm_90a"', LOCKED, '"sm_90a" is no architecture of a GPU in //:e'),
        (f"{GPU}\nsizes = {{ batch = [8, 1, 32] }}", LOCKED, "are not the least, the usual and the greatest in //:e"),
        (f"{GPU}\noptimization = 6", LOCKED, '"optimization" must be from 0 to 5'),
        (GPU, ("onnx",), "//:made has no TensorRT in //:e"),
        (GPU, LOCKED[:3], "//:made has no tensorrt-cu13-libs in //:e"),
    ],
)
def test_a_mistake_is_told_at_load(tmp_path: Path, more: str, locked: tuple[str, ...], told: str) -> None:
    found = errors(workspace(tmp_path, table(more), locked=locked))
    assert any(told in error for error in found), found


def build(folder: Path, architecture: str) -> Path:
    engine = folder / "model.engine"
    build_tensorrt.run(
        model=folder / "layer.onnx",
        engine=engine,
        architecture=architecture,
        optimization=3,
        tf32=False,
        workspace_bytes=0,
        runs_on="same",
        sizes={},
    )
    return engine


def test_a_machine_without_the_gpu_refuses_before_it_looks_for_tensorrt(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="an engine for sm_30 is built on such a GPU, and "):
        build(tmp_path, "sm_30")  # which no driver of today knows


def test_an_engine_has_the_inputs_and_outputs_of_its_model(tmp_path: Path) -> None:
    machine = this_machine()
    architecture = dict(machine.labels).get("arch", "")
    if not architecture:
        pytest.skip("TensorRT builds on a GPU, and here is none")
    trt = pytest.importorskip("tensorrt", reason="the wheels of TensorRT are in NVIDIA's own index")
    pytest.importorskip("onnx", reason="a layer's ONNX file is written by onnx")
    from mlcbuild.compiler.environments.programs import write_onnx

    reference(CASES["llama"], tmp_path / "source", 0)
    export(tmp_path / "source", tmp_path, 0)
    write_onnx.run(
        graph=tmp_path / "layer.json", weights=tmp_path / "weights.safetensors", model=tmp_path / "layer.onnx"
    )
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(build(tmp_path, architecture).read_bytes())
    assert {engine.get_tensor_name(number) for number in range(engine.num_io_tensors)} == {*INPUTS, *OUTPUTS}
