"""Layers of our own models by other compilers: declared once, and as near to transformers as float32 is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from tests.compiler.exported_layers import (
    INPUTS,
    OUTPUTS,
    PLACES,
    TOKENS,
    Computed,
    by_torch,
    export,
    reference,
)
from tests.compiler.family_case import case_of
from tests.compiler.tiny_models import ONE_TOKEN, Array
from tests.compiler.windowed_cases import WINDOWED
from tests.end_to_end.compilers.compiler_world import BOUND, HERE, HERE_LEVEL, LICENSES, ran
from tests.end_to_end.world import World

MODELS = {
    "llama": (case_of("llama", rms_norm_eps=1e-5), 1),
    "qwen2": (case_of("qwen2"), 1),
    "qwen3": (case_of("qwen3", head_dim=32), 1),
    "gemma2": (WINDOWED["gemma2"], 0),  # the layer with a window
}
COMPILERS: dict[str, tuple[str, dict[str, str]]] = {
    "onnxruntime": ("ort_model", {}),
    "openvino": ("openvino_model", {"form": "blob"}),
    "iree": ("iree_module", {"cpu": HERE_LEVEL}),
}
BEGIN = 20  # of the tokens of the case: behind the window


class LayerWorld(World):
    """For each of MODELS: MODEL-layer, MODEL-onnx, and, for each of COMPILERS, MODEL-COMPILER and its error."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # Where wheels come from is what pip is set to, also by variables.
        self.environment.update({name: value for name, value in os.environ.items() if name.startswith("PIP_")})
        for path in (HERE / "layers").glob("*.py"):
            self.write(f"layers/{path.name}", path.read_bytes())
        self.write("layers/BUILD.toml", "")
        self.tables: dict[str, str] = {}
        for compiler in ("onnxruntime", "openvino", "iree", "jax", "torch"):
            self.write(f"{compiler}.txt", (HERE / "locks" / f"{compiler}.txt").read_bytes())
            self.table("python_environment", compiler, lock=f"{compiler}.txt", license=LICENSES[compiler])
        for name, (case, layer) in MODELS.items():
            before, behind = reference(case, self.root / "checkpoints" / name, layer)
            self.write(f"checkpoints/{name}/tokenizer.json", ONE_TOKEN)
            made = folder / f"{name}-exported"
            by_positions = by_torch(made, export(self.root / "checkpoints" / name, made, layer), before)
            write_case(self.root / f"{name}-cases", by_positions, before, behind)
            self.layer(name)
            self.table("onnx_model", f"{name}-onnx", source=f":{name}-layer", environment=":onnxruntime")
            for compiler, (rule, attributes) in COMPILERS.items():
                built = f"{name}-{compiler}"
                self.table(rule, built, model=f":{name}-onnx", environment=f":{compiler}", **attributes)
                self.table("layer_error", f"{built}-error", build=f":{built}", cases=f"{name}-cases")

    def layer(self, name: str, **changes: int) -> None:
        self.table("model", name, source=f"checkpoints/{name}")
        sizes = {"layer": MODELS[name][1], "tokens": TOKENS, "cache_tokens": PLACES, **changes}
        self.table("exported_layer", f"{name}-layer", model=f":{name}", **sizes)

    def table(self, rule: str, name: str, **attributes: str | int) -> None:
        """Add a target, or write it anew."""
        lines = [f"{key} = {json.dumps(value)}" for key, value in attributes.items()]
        self.tables[name] = "\n".join([f"[[{rule}]]", f'name = "{name}"', *lines, ""])
        head = '[workspace]\nname = "layers"\nrules = ["//layers:rules.py"]\n'
        self.write("BUILD.toml", "\n".join([head, *self.tables.values()]))

    def error(self, name: str) -> float:
        (told,) = json.loads(self.output(f"{name}-error/error.json").read_text())["cases"]
        assert told.get("failure") is None, told
        assert told["largest"] > 0.5, "an output of nearly nothing would prove nothing"
        return float(told["error"])


def write_case(folder: Path, computed: Computed, before: Array, behind: Array) -> None:
    """One call, in the form that comparisons have: TOKENS tokens from BEGIN on. Hidden states are those of
    transformers, and what the cache holds behind them is no number."""
    end = BEGIN + TOKENS
    past = [kept.copy() for kept in (computed.keys, computed.values)]
    for kept in past:
        kept[:, :, BEGIN:] = 1e6
    inputs = [before[None, BEGIN:end], np.arange(BEGIN, end), *past]
    outputs = [behind[None, BEGIN:end], computed.keys[:, :, BEGIN:end], computed.values[:, :, BEGIN:end]]
    (folder / "1").mkdir(parents=True)
    for number, (array, dtype) in enumerate(zip(inputs, ("f4", "i4", "f4", "f4"), strict=True)):
        np.save(folder / "1" / f"in-{number}.npy", array.astype(dtype))
    for number, array in enumerate(outputs):
        np.save(folder / "1" / f"out-{number}.npy", array)
    (folder / "cases.json").write_text(json.dumps({"inputs": INPUTS, "outputs": OUTPUTS, "sizes": [1]}))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> LayerWorld:
    return LayerWorld(tmp_path_factory.mktemp("layers"))


@pytest.mark.parametrize(
    "models", [("llama", "gemma2"), pytest.param(("qwen2", "qwen3"), marks=pytest.mark.exhaustive)]
)
def test_one_file_by_three_compilers_computes_what_transformers_does(
    world: LayerWorld, models: tuple[str, ...]
) -> None:
    names = [f"{model}-{compiler}" for model in models for compiler in COMPILERS]
    done = world.build(*(f"//:{name}-error" for name in names))
    assert done.code == 0, done.err
    errors = {name: world.error(name) for name in names}
    assert {name: error for name, error in errors.items() if error > BOUND} == {}


def test_a_comparison_gives_a_layer_positions_behind_its_cache(world: LayerWorld) -> None:
    """At the position 0 nothing of the cache is looked at, and a compiler that reads it wrong computes the same."""
    world.table("layer_cases", "llama-inputs", model=":llama-onnx", environment=":onnxruntime")
    done = world.build("//:llama-inputs")
    assert done.code == 0, done.err
    (folder,) = (each for each in world.output("llama-inputs/cases").iterdir() if each.is_dir())
    hidden, positions, keys, values = (np.load(folder / f"in-{number}.npy") for number in range(4))
    begin = int(positions[0])
    assert positions.tolist() == list(range(begin, begin + TOKENS))
    assert PLACES // 2 < begin < PLACES, "some of its places are not looked at"

    def computed(keys: Array, values: Array) -> Array:
        scope: dict[str, Any] = {}
        exec((world.root.parent / "llama-exported/layer_torch.py").read_text(), scope)
        module, _ = scope["model"]()
        weights = load_file(world.root.parent / "llama-exported/weights.safetensors")
        module.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
        with torch.no_grad():
            output: Array = module(*map(torch.from_numpy, (hidden, positions, keys, values)))[0].numpy()
        return output

    expected = np.load(folder / "out-0.npy")
    assert np.abs(computed(keys, values) - expected).max() < 1e-4
    for place in (1, begin - 1):
        for number, changed in enumerate((keys, values)):
            other = changed.copy()
            other[:, :, place] += 2
            given = (other, values) if number == 0 else (keys, other)
            assert np.abs(computed(*given) - expected).max() > 1e-3, f"place {place}"


def test_other_weights_export_nothing_again(world: LayerWorld) -> None:
    wanted = ("//:llama-onnx", "//:gemma2-layer")
    assert world.build(*wanted).code == 0
    assert ran(world.build(*wanted)) == set()

    file, own = world.root / "checkpoints/llama/model.safetensors", "model.layers.1.mlp.down_proj.weight"
    weights = load_file(file)
    save_file({**weights, own: weights[own] * 2}, file)
    done = world.build("--verbose", *wanted)
    save_file(weights, file)
    assert ran(done) == {"llama-onnx"}, "of the targets that are asked for"
    assert "LayerWeights" in done.err
    assert "ExportLayer" not in done.err, "its graph holds no weights"


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", MODELS)
def test_stablehlo_of_a_layer_computes_what_transformers_does(world: LayerWorld, model: str) -> None:
    """Also by XLA ahead of time, and by IREE."""
    world.table("stablehlo_module", f"{model}-hlo", source=f":{model}-layer", environment=":jax")
    world.table("xla_executable", f"{model}-xla", model=f":{model}-hlo", environment=":jax")
    world.table("iree_module", f"{model}-iree-hlo", model=f":{model}-hlo", environment=":iree", cpu=HERE_LEVEL)
    world.table(
        "called",
        f"{model}-hlo-error",
        environment=":jax",
        module=f":{model}-hlo",
        weights=f":{model}-layer",
        cases=f"{model}-cases",
    )
    done = world.build(f"//:{model}-hlo-error", f"//:{model}-xla", f"//:{model}-iree-hlo")
    assert done.code == 0, done.err
    assert world.error(f"{model}-hlo") < BOUND


@pytest.mark.exhaustive
def test_pytorch_takes_a_layer(world: LayerWorld) -> None:
    """Numbers of the file that it reads are those of tests/compiler/test_exported_layers.py."""
    world.table("torch_model", "llama-torch", source=":llama-layer", weights=":llama-layer", environment=":torch")
    world.table("torch_exported_program", "llama-program", model=":llama-torch", environment=":torch")
    done = world.build("//:llama-program")
    assert done.code == 0, done.err
    told = json.loads(world.output("llama-torch/model.json").read_text())
    assert [each["name"] for each in told["inputs"]] == INPUTS


@pytest.mark.exhaustive
def test_the_same_bytes_in_another_surrounding(world: LayerWorld) -> None:
    done = world.build("--check-determinism", "//:llama-layer", "//:llama-onnx")
    assert done.code == 0, done.err
