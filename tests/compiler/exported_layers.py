"""A layer of a small model, exported, beside what transformers computes for it in float64."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from mlcbuild.compiler.stages import export_layer, layer_weights
from tests.compiler import schemes
from tests.compiler.families import save
from tests.compiler.family_case import FamilyCase
from tests.compiler.resolving import model_builders
from tests.compiler.running import random_model
from tests.compiler.staged_weights import imported
from tests.compiler.tiny_models import Array

INPUTS = ["hidden", "positions", "past_keys", "past_values"]
OUTPUTS = ["output", "keys", "values"]
TEXT = 24  # tokens, more than the windows of the small models
TOKENS, PLACES = 4, 28


def reference(case: FamilyCase, folder: Path, layer: int) -> tuple[Array, Array]:
    """Write a random model's checkpoint, and return the hidden states before and behind a layer (TEXT, hidden), as
    transformers computes them in float64."""
    import torch

    model = random_model(case.model)
    save(model, case, folder)
    model = model.double()
    count = case.config.get("num_hidden_layers") or case.config.get("n_layer") or case.config["num_layers"]
    (layers,) = (each for each in model.modules() if isinstance(each, torch.nn.ModuleList) and len(each) == count)
    seen: dict[str, Array] = {}

    def keep(_: Any, given: tuple[Any, ...], named: Mapping[str, Any], made: Any) -> None:
        before = given[0] if given else named["hidden_states"]
        behind = made[0] if isinstance(made, tuple) else made
        seen["before"], seen["behind"] = (each.detach().numpy().reshape(TEXT, -1) for each in (before, behind))

    layers[layer].register_forward_hook(keep, with_kwargs=True)
    with torch.no_grad():
        model(torch.tensor([np.random.default_rng(1).integers(3, 300, TEXT).tolist()]))
    return seen["before"], seen["behind"]


def export_graph(directory: Path, layer: int, *, tokens: int = TOKENS, cache_tokens: int = PLACES) -> None:
    """Export a layer of the model.json in `directory`: `layer.json`, `layer_jax.py` and `layer_torch.py`."""
    scheme = schemes.scheme("q0f32")
    export_layer.run(
        model=directory / "model.json",
        graph=directory / "layer.json",
        jax_source=directory / "layer_jax.py",
        torch_source=directory / "layer_torch.py",
        models=model_builders(),
        scheme=scheme,
        reader=schemes.reader_class(scheme),
        layer=layer,
        tokens=tokens,
        cache_tokens=cache_tokens,
    )


def export(folder: Path, directory: Path, layer: int) -> dict[str, Array]:
    """Export a layer of the checkpoint in `folder` into `directory`, and its weights, which are returned, to
    `weights.safetensors` there."""
    directory.mkdir(exist_ok=True)
    imported(directory, folder, json.loads((folder / "config.json").read_text()))
    export_graph(directory, layer)
    layer_weights.run(
        graph=directory / "layer.json",
        parameters=directory / "parameters.json",
        shards=tuple(sorted((directory / "shards").iterdir())),
        weights=directory / "weights.safetensors",
    )
    found: dict[str, Array] = load_file(directory / "weights.safetensors")
    return found


@dataclass(frozen=True, kw_only=True)
class Computed:
    """What a layer computes of a text: `output` (TEXT, hidden), and the cache behind it."""

    output: Array
    keys: Array
    values: Array


def by_torch(directory: Path, weights: Mapping[str, Array], hidden: Array) -> Computed:
    """What the exported file computes of a text in PyTorch, in float64, TOKENS at a time. What the cache holds where it
    is not filled is far from any key."""
    import torch

    scope: dict[str, Any] = {}
    exec((directory / "layer_torch.py").read_text(), scope)
    module, inputs = scope["model"]()
    module.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    module = module.double()
    keys, values = (torch.full(inputs[place].shape, 1e6, dtype=torch.float64) for place in (2, 3))
    made = []
    for begin in range(0, TEXT, TOKENS):
        positions = torch.arange(begin, begin + TOKENS, dtype=torch.int32)
        given = torch.from_numpy(hidden[None, begin : begin + TOKENS])
        with torch.no_grad():
            output, new_keys, new_values = module(given, positions, keys, values)
        keys[:, :, begin : begin + TOKENS], values[:, :, begin : begin + TOKENS] = new_keys, new_values
        made.append(output.numpy()[0])
    return Computed(output=np.concatenate(made), keys=keys.numpy(), values=values.numpy())
