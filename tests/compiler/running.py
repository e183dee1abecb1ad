"""Run a built library with TVM's virtual machine, and the same weights with transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax

Array = npt.NDArray[Any]


@dataclass
class Library:
    """A loaded library with its weights and one KV cache."""

    machine: Any
    parameters: list[Any]
    cache: Any

    @staticmethod
    def load(path: Path, weights: Mapping[str, Array], *, context: int = 512, batch: int = 4) -> Library:
        device = tvm.cpu()
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), device)
        names = [item["name"] for item in json.loads(str(machine["_metadata"]()))["params"]]
        parameters = [tvm.runtime.tensor(np.ascontiguousarray(weights[name]), device) for name in names]
        cache = machine["create_paged_kv_cache"](
            *(tvm_ffi.Shape([size]) for size in (batch, batch * context, context, 16, 0))
        )
        return Library(machine, parameters, cache)

    def add(self, sequence: int) -> None:
        _function("vm.builtin.kv_state_add_sequence")(self.cache, sequence)

    def embed(self, tokens: Sequence[int]) -> Array:
        ids = tvm.runtime.tensor(np.asarray(tokens, "int32"))
        return self.machine["embed"](ids, self.parameters).numpy()

    def run(self, entry: str, sequences: Sequence[int], lengths: Sequence[int], embedded: Array, *more: Array) -> Array:
        """One forward pass; `embedded` as the entry function takes it. Returns the logits."""
        _function("vm.builtin.kv_state_begin_forward")(
            self.cache, tvm_ffi.Shape(list(sequences)), tvm_ffi.Shape(list(lengths))
        )
        arguments = [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in (embedded, *more)]
        logits, _ = self.machine[entry](*arguments, self.cache, self.parameters)
        _function("vm.builtin.kv_state_end_forward")(self.cache)
        result: Array = logits.numpy()
        return result

    def prefill(self, sequence: int, tokens: Sequence[int]) -> Array:
        """Logits (vocabulary,) of the last token."""
        return self.run("prefill", [sequence], [len(tokens)], self.embed(tokens)[None])[0, 0]

    def decode(self, sequence: int, token: int) -> Array:
        """Logits (vocabulary,) after one more token."""
        return self.run("decode", [sequence], [1], self.embed([token])[None])[0, 0]


def _function(name: str) -> Any:
    return tvm_ffi.get_global_func(name)


def transformers_model(config: Mapping[str, object], *, dtype: str = "float32", seed: int = 0) -> Any:
    """A random model of transformers for a config.json, in evaluation mode."""
    import torch
    import transformers

    torch.manual_seed(seed)
    kind = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(kind)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                centre = 1.0 if "norm" in name else 0.0
                parameter.copy_(centre + 0.1 * torch.randn_like(parameter))
            else:
                parameter.copy_(torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
    return model.to(getattr(torch, dtype)).eval()


def merged_weights(model: Any) -> dict[str, Array]:
    """The model's weights as float32 arrays under MLC-LLM's names, projections merged."""
    state = {name: value.detach().float().numpy() for name, value in model.state_dict().items()}
    merged = dict(state)
    for part in ("weight", "bias"):
        for name in state:
            prefix = name.removesuffix(f"q_proj.{part}")
            if prefix != name:
                parts = [merged.pop(f"{prefix}{which}_proj.{part}") for which in "qkv"]
                merged[f"{prefix}qkv_proj.{part}"] = np.concatenate(parts)
            prefix = name.removesuffix(f"gate_proj.{part}")
            if prefix != name:
                parts = [merged.pop(f"{prefix}{which}_proj.{part}") for which in ("gate", "up")]
                merged[f"{prefix}gate_up_proj.{part}"] = np.concatenate(parts)
    if model.config.tie_word_embeddings:
        merged.pop("lm_head.weight")
    return merged
