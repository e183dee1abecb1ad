"""PyTorch in its environment: programs of torch.export and libraries of AOTInductor.

pip finds the wheel of its CPU build where it is set to look."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.end_to_end.compilers.compiler_world import BOUND, HERE_LEVEL, MODELS, CompilerWorld, ran

pytestmark = pytest.mark.exhaustive
LEVEL = HERE_LEVEL if HERE_LEVEL in ("x86-64-v3", "x86-64-v4") else "x86-64-v2"
SOURCE = "torch_models.py"


def compiler_world(folder: Path) -> CompilerWorld:
    """Each model as MODEL-torch, its program MODEL-exported, and its library MODEL-aoti."""
    world = CompilerWorld(folder, "torch")
    for model in MODELS:
        torch_model(world, model)
        world.table("torch_exported_program", f"{model}-exported", model=f":{model}-torch", environment=":torch")
        world.compared(f"{model}-exported", model, environment=":torch", runtime="exported", ending=".pt2")
        aoti(world, f"{model}-aoti", model, LEVEL)
        world.compared(f"{model}-aoti", model, environment=":torch", runtime="aoti", ending="")
    return world


def torch_model(world: CompilerWorld, model: str, **more: dict[str, int]) -> None:
    weights = f":{model}-source"
    world.table(
        "torch_model",
        f"{model}-torch",
        source=SOURCE,
        function=model,
        weights=weights,
        environment=":torch",
        **more,
    )


def aoti(world: CompilerWorld, name: str, model: str, level: str, **more: int) -> None:
    world.table("torch_aoti_library", name, model=f":{model}-torch", environment=":torch", cpu=level, **more)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CompilerWorld:
    return compiler_world(tmp_path_factory.mktemp("torch"))


@pytest.mark.parametrize("form", ["exported", "aoti"])
@pytest.mark.parametrize("model", MODELS)
def test_torch_computes_what_float64_does(world: CompilerWorld, model: str, form: str) -> None:
    done = world.build(f"//:{model}-{form}-error")
    assert done.code == 0, done.err
    assert world.error(f"{model}-{form}") < BOUND


def test_what_an_edit_runs(world: CompilerWorld) -> None:
    wanted = ("//:mlp-exported", "//:mlp-aoti", "//:layer-aoti")
    assert world.build(*wanted).code == 0
    before = world.output("mlp-aoti/model.pt2").read_bytes()
    assert ran(world.build(*wanted)) == set()

    world.table("written", "mlp-source", kind="mlp", seed=2, environment=":onnxruntime")
    weights = world.output("mlp-aoti/weights.safetensors").read_bytes()
    assert ran(world.build(*wanted)) == {"mlp-exported"}, "other weights of one model compile nothing"
    assert world.output("mlp-aoti/weights.safetensors").read_bytes() != weights

    source = world.root / SOURCE
    text = source.read_text()
    source.write_text(text.replace("class Multilayer", "# A comment.\n\n\nclass Multilayer"))
    assert ran(world.build(*wanted)) == set(), "another line for the same operators"
    source.write_text(text.replace("torch.relu(x @ self.w1", "torch.sigmoid(x @ self.w1"))
    assert ran(world.build(*wanted)) == {"mlp-exported", "mlp-aoti"}, "another function of one model"
    source.write_text(text)
    assert ran(world.build(*wanted)) == set()
    assert world.output("mlp-aoti/model.pt2").read_bytes() == before

    torch_model(world, "mlp", arguments={"batch": 4})
    assert ran(world.build(*wanted)) == {"mlp-exported", "mlp-aoti"}, "another argument of the function"
    torch_model(world, "mlp")
    aoti(world, "mlp-aoti", "mlp", LEVEL, threads=1)
    assert ran(world.build(*wanted)) == {"mlp-aoti"}, "another number of threads"
    other = "x86-64-v2" if LEVEL != "x86-64-v2" else "x86-64-v3"
    aoti(world, "mlp-aoti", "mlp", other)
    assert ran(world.build(*wanted)) == {"mlp-aoti"}, "processors of another level"


def test_weights_that_do_not_fit_are_told(world: CompilerWorld) -> None:
    world.table("torch_model", "wrong", source=SOURCE, function="block", weights=":mlp-source", environment=":torch")
    done = world.build("//:wrong")
    assert done.code == 1
    assert "the weights do not fit the model:" in done.err
    assert "the model has no b1" in done.err
    assert "w1 is float32 [64, 256], and the model has float32 [16, 16, 3, 3]" in done.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def other():\n    pass\n", "wrong.py has no function model"),
        ("def model():\n    return 1\n", "model of wrong.py returns no module and its example inputs"),
        (
            "import torch\n\n\nclass M(torch.nn.Module):\n    def forward(self, x):\n        return x if x.sum() > 0 "
            "else -x\n\n\ndef model():\n    return M(), (torch.ones(2),)\n",
            "cannot export the model: ",
        ),
    ],
)
def test_a_function_that_makes_no_model_is_told(world: CompilerWorld, text: str, told: str) -> None:
    world.write("wrong.py", text)
    world.table("torch_model", "wrong", source="wrong.py", weights=":mlp-source", environment=":torch")
    done = world.build("//:wrong")
    assert done.code == 1
    assert told in done.err


def test_a_library_names_no_folder_of_the_machine(world: CompilerWorld) -> None:
    assert world.build("//:layer-aoti").code == 0
    with zipfile.ZipFile(world.output("layer-aoti/model.pt2")) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    assert any(name.endswith(".so") for name in content)
    assert not any(str(world.folder).encode() in each for each in content.values())


def test_the_same_bytes_in_another_surrounding(world: CompilerWorld) -> None:
    """Each action runs twice, in other folders and with other variables."""
    done = world.build("--check-determinism", "--keep-going", "//:layer-aoti", "//:layer-exported", "//:block-aoti")
    assert done.code == 0, done.err


def test_equal_bytes_from_empty_caches_in_two_folders(tmp_path: Path) -> None:
    files = [f"{model}-{form}/model.pt2" for model in MODELS for form in ("exported", "aoti")]
    worlds = [compiler_world(tmp_path / name) for name in ("one", "other")]
    for each in worlds:
        assert each.build(*(f"//:{file.partition('/')[0]}" for file in files)).code == 0
    for file in files:
        assert worlds[0].output(file).read_bytes() == worlds[1].output(file).read_bytes(), file
