"""Statistics of a model of transformers, by hooks on its linear layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.calibration.statistics import ObservedInput, write_index, write_input
from tests.compiler.resolving import parameters_of
from tests.compiler.tiny_models import Array


def observe(model: Any, texts: Iterable[list[int]], folder: Path, *, times: float = 1.0) -> Path:
    """Write what the model's linear layers are multiplied by, `times` a factor, by the names of a package, into a
    folder."""
    import torch

    modules = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    seen: dict[str, list[Array]] = {name: [] for name in modules}

    def hook(name: str) -> Any:
        return lambda _module, given: seen[name].append(given[0].detach().numpy().reshape(-1, given[0].shape[-1]))

    hooks = [module.register_forward_pre_hook(hook(name)) for name, module in modules.items()]
    with torch.no_grad():
        for text in texts:
            model(torch.tensor([text]))
    for one in hooks:
        one.remove()
    inputs = {}
    head = {"model.embed_tokens": "lm_head"} if model.config.tie_word_embeddings else {}
    for parameter in parameters_of(model.config.to_dict()).parameters:
        module = parameter.sources[0].name.removesuffix(".weight")
        if rows := seen.get(head.get(module, module)):
            inputs[parameter.name] = np.concatenate(rows) * np.float32(times)
    return write_statistics(folder, inputs)


def write_statistics(folder: Path, inputs: Mapping[str, Array]) -> Path:
    """A folder of the statistics of inputs (rows, in) in float32, by the name of the matrix that reads them."""
    folder.mkdir(parents=True)
    observed = []
    for number, (name, rows) in enumerate(inputs.items()):
        absolute, file = np.abs(rows), f"{number}.safetensors"
        write_input(folder / file, gram=rows.T @ rows, absolute_sum=absolute.sum(axis=0), maximum=absolute.max(axis=0))
        observed.append(ObservedInput(file=file, matrices=(name,), width=rows.shape[1], rows=len(rows)))
    write_index(folder, tokens=max((one.rows for one in observed), default=0), inputs=observed)
    return folder
