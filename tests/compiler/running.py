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
from tvm.runtime.vm import VirtualMachine

from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from tests.compiler import alibi, schemes
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.rounded_activations import round_activations

Array = npt.NDArray[Any]


@dataclass
class Library:
    """A loaded library with its weights, and what it keeps of sequences: `states`, of which `cache` is the first."""

    machine: Any
    parameters: list[Any]
    states: list[Any]
    window: int = 0  # tokens that the cache keeps of a sequence; 0 for all
    sink: int = 0  # those of them that are the first
    device: Any = None

    @staticmethod
    def load(
        path: Path,
        weights: Mapping[str, Array],
        *,
        context: int = 512,
        batch: int = 4,
        window: int = 0,
        sink: int = 0,
        device: Any = None,
        history: int = 1,
    ) -> Library:
        device = device or tvm.cpu()
        machine = VirtualMachine(tvm.runtime.load_module(str(path)), device)
        metadata = json.loads(str(machine["_metadata"]()))
        names = [item["name"] for item in metadata["params"]]
        parameters = [tvm.runtime.tensor(np.ascontiguousarray(weights[name]), device) for name in names]
        sizes = {
            "create_tir_paged_kv_cache": (batch, batch * context, context, 16, int(window > 0)),
            "create_rnn_state": (batch, history),
        }
        kept = {"kv_cache": list(sizes)[:1], "rnn_state": list(sizes)[1:], "hybrid": list(sizes)}
        states = [
            machine[name](*(tvm_ffi.Shape([size]) for size in sizes[name])) for name in kept[metadata["kv_state_kind"]]
        ]
        return Library(machine, parameters, states, window, sink, device)

    @property
    def cache(self) -> Any:
        return self.states[0]

    def add(self, sequence: int) -> None:
        for state in self.states:
            _function("vm.builtin.kv_state_add_sequence")(state, sequence)
        self.keep(sequence)

    def keep(self, sequence: int) -> None:
        """Has the cache drop what has left the window, of a sequence that is there."""
        if self.window:
            enable = _function("vm.builtin.attention_kv_cache_enable_sliding_window_for_seq")
            enable(self.cache, sequence, self.window, self.sink)

    def embed(self, tokens: Sequence[int]) -> Array:
        ids = tvm.runtime.tensor(np.asarray(tokens, "int32"), self.device)
        return self.machine["embed"](ids, self.parameters).numpy()

    def run(self, entry: str, sequences: Sequence[int], lengths: Sequence[int], embedded: Array, *more: Array) -> Array:
        """One forward pass; `embedded` as the entry function takes it. Returns the logits."""
        for state in self.states:
            begin = _function("vm.builtin.kv_state_begin_forward")
            begin(state, tvm_ffi.Shape(list(sequences)), tvm_ffi.Shape(list(lengths)))
        arguments = [tvm.runtime.tensor(np.ascontiguousarray(array), self.device) for array in (embedded, *more)]
        logits, *_ = self.machine[entry](*arguments, *self.states, self.parameters)
        for state in self.states:
            _function("vm.builtin.kv_state_end_forward")(state)
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


def random_model(config: Mapping[str, object], *, seed: int = 0, with_vision: bool = False) -> Any:
    """A random float32 model of transformers for a config.json, in evaluation mode; `with_vision`: of images and
    texts."""
    import torch
    import transformers

    torch.manual_seed(seed)
    kind = transformers.AutoConfig.for_model(**config)
    kind._attn_implementation = config.get("attn_implementation", "eager")
    if kind._attn_implementation == alibi.NAME:
        alibi.register()
    if with_vision:
        model = transformers.AutoModelForImageTextToText.from_config(kind)
    elif model_of(config).limits.is_encoder:
        model = transformers.AutoModel.from_config(kind, add_pooling_layer=False)
    else:
        model = transformers.AutoModelForCausalLM.from_config(kind)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                module, _, kind = name.rpartition(".")
                is_norm = "norm" in module.lower() or module.rpartition(".")[2].startswith("ln_")
                centre = 1.0 if is_norm and kind == "weight" else 0.0
                parameter.copy_(centre + 0.1 * torch.randn_like(parameter))
            else:
                parameter.copy_(torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
        for buffer in saved_buffers(model).values():
            buffer.copy_(0.1 * torch.randn_like(buffer))
    return model.eval()


def saved_buffers(model: Any) -> dict[str, Any]:
    """What a checkpoint of the model has that is no parameter to torch, such as the correction of scores of experts."""
    saved = model.state_dict()
    return {name: buffer for name, buffer in model.named_buffers() if name in saved}


def tensors_of(model: Any) -> dict[str, Array]:
    """The model's own memory: what a checkpoint of it has, in float32."""
    named = [*model.named_parameters(), *saved_buffers(model).items()]
    return {name: tensor.detach().numpy() for name, tensor in named}


def store(model: Any, scheme: QuantizationScheme) -> dict[str, Array]:
    """The model's weights as the scheme stores them, under MLC-LLM's names. The model's own weights become
    what the stored ones stand for, and it rounds activations as the scheme does, so that it computes with the same
    numbers."""
    document = model.config.to_dict()
    state = tensors_of(model)
    stored = schemes.stored(document, scheme, state)
    sources = {tensor.name: tensor for parameter in parameters_of(document).parameters for tensor in parameter.sources}
    for name, numbers in schemes.restored(document, scheme, stored).items():
        schemes.replace_tensor(state, sources[name], numbers)
    round_activations(model, scheme)
    return stored
