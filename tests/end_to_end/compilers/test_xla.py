"""JAX in its environment: StableHLO, which XLA compiles for this processor and for GPUs, and IREE too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.compilers.compiler_world import BOUND, HERE_LEVEL, MODELS, CompilerWorld, ran

pytestmark = pytest.mark.exhaustive
SOURCE = "jax_models.py"
H100 = """\
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84942979072
  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
device_description_str: "NVIDIA H100 80GB HBM3"
"""


def compiler_world(folder: Path) -> CompilerWorld:
    """Each model as MODEL-stablehlo, MODEL-xla and MODEL-iree for this processor; the layer also for a GPU."""
    world = CompilerWorld(folder, "jax", "jax_cuda", "iree")
    world.write("h100.txtpb", H100)
    for model in MODELS:
        stablehlo(world, f"{model}-stablehlo", model)
        world.table("xla_executable", f"{model}-xla", model=f":{model}-stablehlo", environment=":jax")
        world.compared(f"{model}-xla", model, environment=":jax", runtime="xla", ending=".xla")
        world.table("iree_module", f"{model}-iree", model=f":{model}-stablehlo", environment=":iree", cpu=HERE_LEVEL)
        world.compared(f"{model}-iree", model, environment=":iree", runtime="iree-stablehlo", ending=".vmfb")
    stablehlo(world, "layer-gpu", "layer", platforms=["cuda"])
    world.table("xla_executable", "layer-cuda", model=":layer-gpu", environment=":jax_cuda", gpu="h100.txtpb")
    return world


def stablehlo(world: CompilerWorld, name: str, model: str, **more: dict[str, int] | list[str]) -> None:
    world.table("stablehlo_module", name, source=SOURCE, function=model, environment=":jax", **more)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CompilerWorld:
    return compiler_world(tmp_path_factory.mktemp("jax"))


@pytest.mark.parametrize("compiler", ["xla", "iree"])
@pytest.mark.parametrize("model", MODELS)
def test_stablehlo_computes_what_float64_does(world: CompilerWorld, model: str, compiler: str) -> None:
    done = world.build(f"//:{model}-{compiler}-error")
    assert done.code == 0, done.err
    assert world.error(f"{model}-{compiler}") < BOUND


def test_what_an_edit_runs(world: CompilerWorld) -> None:
    wanted = ("//:mlp-stablehlo", "//:mlp-xla", "//:layer-xla")
    assert world.build(*wanted).code == 0
    assert ran(world.build(*wanted)) == set()
    world.table("written", "mlp-source", kind="mlp", seed=2, environment=":onnxruntime")
    assert ran(world.build(*wanted)) == set(), "weights are arguments"

    source = world.root / SOURCE
    text = source.read_text()
    source.write_text(text.replace("def floats", "# A comment.\n\n\ndef floats"))
    assert ran(world.build(*wanted)) == {"mlp-stablehlo"}, "another line for the same operations"
    source.write_text(text.replace("jnp.maximum(x @", "jnp.tanh(x @").replace('weights["b1"], 0)', 'weights["b1"])'))
    assert ran(world.build(*wanted)) == {"mlp-stablehlo", "mlp-xla"}, "another function of one model"
    source.write_text(text)
    assert world.build(*wanted).code == 0

    stablehlo(world, "mlp-stablehlo", "mlp", arguments={"batch": 4})
    assert ran(world.build(*wanted)) == {"mlp-stablehlo", "mlp-xla"}, "another argument of the function"
    world.table("xla_executable", "mlp-xla", model=":mlp-stablehlo", environment=":jax", processor=HERE_LEVEL)
    assert ran(world.build(*wanted)) == {"mlp-xla"}, "the level by name"
    world.table("xla_executable", "mlp-xla", model=":mlp-stablehlo", environment=":jax", threads=2)
    assert ran(world.build(*wanted)) == {"mlp-xla"}, "another number of threads"


def test_the_same_bytes_in_another_surrounding(world: CompilerWorld) -> None:
    """Each action runs twice, in other folders and with other variables."""
    done = world.build("--check-determinism", "//:layer-gpu", "//:layer-iree")
    assert done.code == 0, done.err


def test_an_executable_for_a_gpu_that_is_not_there(world: CompilerWorld) -> None:
    done = world.build("//:layer-cuda")
    assert done.code == 0, done.err
    assert b"sm_90a" in world.output("layer-cuda/model.xla").read_bytes()


def test_a_gpu_that_xla_does_not_know_is_told(world: CompilerWorld) -> None:
    world.write("wrong.txtpb", "no gpu")
    world.table("xla_executable", "wrong", model=":layer-gpu", environment=":jax_cuda", gpu="wrong.txtpb")
    done = world.build("//:wrong")
    assert done.code == 1
    assert "wrong.txtpb describes no GPU that XLA knows: " in done.err


def test_equal_modules_from_empty_caches_in_two_folders(tmp_path: Path) -> None:
    """The executable for a processor is another matter: XLA writes its object files in the order of finishing them."""
    worlds = [compiler_world(tmp_path / name) for name in ("one", "other")]
    for each in worlds:
        assert each.build(*(f"//:{model}-stablehlo" for model in MODELS)).code == 0
    for model in MODELS:
        for file in ("model.jaxexp", "model.mlirbc"):
            place = f"{model}-stablehlo/{file}"
            assert worlds[0].output(place).read_bytes() == worlds[1].output(place).read_bytes(), place
