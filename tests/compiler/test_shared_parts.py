"""What a family chooses in the shared parts of models: other values than the llama family's, against transformers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.frontend import nn

from mlcbuild.compiler.models.architecture.activation import Activation
from mlcbuild.compiler.models.architecture.rotary import RopeScaling, RotaryEmbedding, RotaryForm
from mlcbuild.compiler.models.layers.feed_forward import ACTIVATIONS
from tests.compiler import schemes
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.running import Library, random_model, store
from tests.compiler.tiny_models import Array

HEADS = {"q_proj": 4, "k_proj": 2}
CONFIG: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
}
TOKENS = np.random.default_rng(3).integers(0, 300, 24).tolist()


@pytest.mark.parametrize("activation", Activation)
def test_an_activation_is_torchs(activation: Activation) -> None:
    from transformers.activations import ACT2FN

    class Alone(nn.Module):
        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return ACTIVATIONS[activation](x)

    module, _ = Alone().export_tvm(spec={"forward": {"x": nn.spec.Tensor([64], "float32")}})
    machine = relax.VirtualMachine(relax.build(module, target="llvm"), tvm.cpu())
    numbers = np.linspace(-6, 6, 64, dtype=np.float32)
    import torch

    expected = ACT2FN[activation.value](torch.from_numpy(numbers)).numpy()
    np.testing.assert_allclose(machine["forward"](tvm.runtime.tensor(numbers)).numpy(), expected, rtol=1e-5, atol=1e-6)


def logits_of(directory: Path, kernel_store: Path, weights: Mapping[str, Array], **attention: object) -> Array:
    """Logits after a prompt and after each further token."""
    path = compile_library(CONFIG, "q0f32", CPU_TARGET, directory, kernel_store=kernel_store, attention=attention)
    library = Library.load(path, weights)
    library.add(0)
    rows = [library.prefill(0, TOKENS[:16]), *(library.decode(0, token) for token in TOKENS[16:])]
    return np.stack(rows)


def expected_logits(model: Any) -> Array:
    import torch

    with torch.no_grad():
        logits: Array = model(torch.tensor([TOKENS])).logits[0].numpy()
    return logits[15:]


@pytest.mark.slow
def test_attention_with_another_scale_and_without_rotation(tmp_path: Path, kernel_store: Path) -> None:
    import torch

    class NoRotation(torch.nn.Module):
        def forward(self, hidden: Any, position_ids: Any) -> tuple[Any, Any]:
            shape = (*position_ids.shape, 16)
            return torch.ones(shape), torch.zeros(shape)

    model = random_model(CONFIG)
    weights = store(model, schemes.scheme("q0f32"))
    model.model.rotary_emb = NoRotation()
    for layer in model.model.layers:
        layer.self_attn.scaling = 0.6
    plain = RotaryEmbedding(base=10000.0, form=RotaryForm.NONE)
    found = logits_of(
        tmp_path,
        kernel_store,
        weights,
        softmax_scale=0.6,
        rotary={"base": plain.base, "scaling": None, "form": plain.form.value},
    )
    np.testing.assert_allclose(found, expected_logits(model), rtol=0, atol=1e-4)


@pytest.mark.slow
def test_a_rotation_of_neighbours_is_one_of_halves_with_rows_interleaved(tmp_path: Path, kernel_store: Path) -> None:
    model = random_model(CONFIG)
    scheme = schemes.scheme("q0f32")
    expected = expected_logits(model)
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            heads = next((count for part, count in HEADS.items() if part in name), 0)
            if heads:
                rows = parameter.reshape(heads, 2, 8, 64).transpose(1, 2).reshape(parameter.shape)
                parameter.copy_(rows.clone())
    found = logits_of(
        tmp_path,
        kernel_store,
        store(model, scheme),
        rotary={"base": 10000.0, "scaling": None, "form": RotaryForm.NEIGHBOURS.value},
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_neighbours_are_not_turned_by_a_rule_that_tvm_has_for_halves_alone() -> None:
    with pytest.raises(ValueError, match="plain frequencies alone"):
        RotaryEmbedding(
            base=math.e * 1000,
            form=RotaryForm.NEIGHBOURS,
            scaling=RopeScaling(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0),
        )
