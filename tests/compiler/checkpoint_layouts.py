"""Checkpoints of a model in every layout that its parameters say they have."""

from __future__ import annotations

import numpy as np

from mlcbuild.compiler.models.checkpoints.parameters import ParameterList, TensorLayout
from mlcbuild.compiler.weights.operations import carry_out
from tests.compiler.tiny_models import Array


def checkpoint_layouts(parameters: ParameterList) -> dict[str, dict[str, Array]]:
    """The same random numbers in each layout: an expert a tensor, all experts in one, and as llama.cpp has them."""
    random = np.random.default_rng(0)
    found: dict[str, dict[str, Array]] = {"apart": {}, "fused": {}, "gguf": {}}
    for tensor in [tensor for parameter in parameters.parameters for tensor in parameter.sources]:
        numbers = random.standard_normal(tensor.shape).astype(np.float32)
        found["apart"][tensor.name] = numbers
        assert tensor.gguf is not None
        for name, layout in (("fused", tensor.others[0] if tensor.others else None), ("gguf", tensor.gguf)):
            if layout is None:
                found[name][tensor.name] = numbers
            else:
                assert isinstance(layout, TensorLayout)
                whole = found[name].setdefault(layout.name, np.zeros(layout.shape, np.float32))
                part = carry_out(layout.operations, [np.arange(whole.size).reshape(whole.shape)])
                whole.reshape(-1)[part.reshape(-1)] = numbers.reshape(-1)
    return found
