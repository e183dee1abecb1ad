"""What serving engines look up in a library, by kind of library, and what calls it as they do.

`FUNCTIONS` are the names that MLC-LLM's engine (`cpp/serve/function_table.cc`) and WebLLM (`llm_chat.ts`) ask a library
for; docs/engines.md has them as a table. `tests.engine_checks` calls each.
"""

from __future__ import annotations

import enum
import functools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcbuild.errors import UsageError
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.machine import Machine

Array = npt.NDArray[Any]

REPEATS = 20


class Presence(enum.Enum):
    """Which libraries of models that generate text have a function."""

    ALL = "every library"
    GPU = "libraries for GPUs"
    HIDDEN_STATES = "with `hidden_states = true`"
    PAGES = "all but models of recurrent layers alone"
    RECURRENT = "models with recurrent layers"
    NONE = "no library"


class Kind(enum.Enum):
    """What a library's model is, for an engine."""

    PAGED = "keys and values in pages"
    RECURRENT = "recurrent states"
    HYBRID = "pages and recurrent states"
    ENCODER = "an encoder"
    EMBEDDING_DECODER = "a decoder that makes embeddings"

    @property
    def generates(self) -> bool:
        return self not in (Kind.ENCODER, Kind.EMBEDDING_DECODER)

    @property
    def has_pages(self) -> bool:
        return self in (Kind.PAGED, Kind.HYBRID, Kind.EMBEDDING_DECODER)

    @property
    def is_recurrent(self) -> bool:
        return self in (Kind.RECURRENT, Kind.HYBRID)


FUNCTIONS: Mapping[str, Presence] = {
    "embed": Presence.ALL,
    "prefill": Presence.ALL,
    "decode": Presence.ALL,
    "batch_prefill": Presence.ALL,
    "batch_decode": Presence.ALL,
    "batch_verify": Presence.ALL,
    "create_tir_paged_kv_cache": Presence.PAGES,
    "softmax_with_temperature": Presence.ALL,
    "alloc_embedding_tensor": Presence.ALL,
    "apply_logit_bias_inplace": Presence.ALL,
    "apply_penalty_inplace": Presence.ALL,
    "apply_bitmask_inplace": Presence.ALL,
    "gather_probs": Presence.ALL,
    "scatter_probs": Presence.ALL,
    "_metadata": Presence.ALL,
    "multinomial_from_uniform": Presence.GPU,
    "argsort_probs": Presence.GPU,
    "sample_with_top_p": Presence.GPU,
    "sampler_take_probs": Presence.GPU,
    "sampler_verify_draft_tokens": Presence.GPU,
    "renormalize_by_top_p": Presence.GPU,
    "cuda_graph_alloc_init": Presence.GPU,
    "prefill_to_last_hidden_states": Presence.HIDDEN_STATES,
    "decode_to_last_hidden_states": Presence.HIDDEN_STATES,
    "batch_prefill_to_last_hidden_states": Presence.HIDDEN_STATES,
    "batch_decode_to_last_hidden_states": Presence.HIDDEN_STATES,
    "batch_verify_to_last_hidden_states": Presence.HIDDEN_STATES,
    "get_logits": Presence.HIDDEN_STATES,
    "batch_get_logits": Presence.HIDDEN_STATES,
    "batch_select_last_hidden_states": Presence.HIDDEN_STATES,
    "gather_hidden_states": Presence.HIDDEN_STATES,
    "scatter_hidden_states": Presence.HIDDEN_STATES,
    "create_flashinfer_paged_kv_cache": Presence.NONE,
    "create_rnn_state": Presence.RECURRENT,
    "fuse_embed_hidden_states": Presence.NONE,
    "extend": Presence.NONE,
    "batch_extend": Presence.NONE,
    "image_embed": Presence.NONE,
}
OF_EMBEDDINGS: Mapping[Kind, frozenset[str]] = {
    Kind.ENCODER: frozenset({"_metadata", "prefill"}),
    Kind.EMBEDDING_DECODER: frozenset(
        {
            "_metadata",
            "embed",
            "create_tir_paged_kv_cache",
            "alloc_embedding_tensor",
            "prefill_to_last_hidden_states",
            "decode_to_last_hidden_states",
            "batch_prefill_to_last_hidden_states",
            "batch_decode_to_last_hidden_states",
        }
    ),
}


def expected_functions(kind: Kind, *, gpu: bool, hidden_states: bool) -> frozenset[str]:
    """The names of `FUNCTIONS` that a library has, no more and no fewer."""
    if not kind.generates:
        return OF_EMBEDDINGS[kind]
    present = {Presence.ALL}
    present |= {Presence.GPU} if gpu else set()
    present |= {Presence.HIDDEN_STATES} if hidden_states else set()
    present |= {Presence.PAGES} if kind.has_pages else set()
    present |= {Presence.RECURRENT} if kind.is_recurrent else set()
    return frozenset(name for name, presence in FUNCTIONS.items() if presence in present)


class Engine:
    """Calls of one library's functions, with what those took that are timed."""

    def __init__(self, library: Path) -> None:
        self.machine = Machine(library)
        self.metadata = json.loads(str(self.machine.entry("_metadata")()))
        self.vocabulary = int(self.metadata["vocab_size"])
        self.active = int(self.metadata["active_vocab_size"])
        self.took: dict[str, float] = {}

    @property
    def kind(self) -> Kind:
        """By what the metadata tells an engine."""
        if self.metadata["model_task"] == "embedding":
            is_encoder = self.metadata["embedding_metadata"]["model_type"] == "encoder"
            return Kind.ENCODER if is_encoder else Kind.EMBEDDING_DECODER
        kinds = {"kv_cache": Kind.PAGED, "rnn_state": Kind.RECURRENT, "hybrid": Kind.HYBRID}
        return kinds[self.metadata["kv_state_kind"]]

    @functools.cached_property
    def weights(self) -> Any:
        """Random ones, made once: a recorded CUDA graph reads those that it was recorded with."""
        random = np.random.default_rng(0)
        made = {tensor.name: _weight(random, tensor) for tensor in map(ExpectedTensor.of, self.metadata["params"])}
        made |= _absorbed(made)
        return self.machine.array(list(map(self.machine.tensor, made.values())))

    @property
    def functions(self) -> frozenset[str]:
        """Those of `FUNCTIONS` that the library has."""
        return frozenset(filter(self.has, FUNCTIONS))

    def has(self, name: str) -> bool:
        try:
            self.machine.entry(name)
        except UsageError:
            return False
        return True

    def call(self, name: str, *arrays: Array) -> list[Array]:
        """The results, then the arguments as the call has left them. Of a function that changes its arguments in place,
        what counts is its first call."""
        function = self.machine.entry(name)
        tensors = [self.machine.tensor(np.ascontiguousarray(array)) for array in arrays]
        result = function(*tensors)
        made = [result] if hasattr(result, "numpy") else list(result)
        found = [np.array(tensor.numpy()) for tensor in (*made, *tensors)]
        began = time.perf_counter()
        for _ in range(REPEATS):
            function(*tensors)
        tensors[0].numpy()  # waits for all of them
        self.took[f"{name} × {len(arrays[0])}"] = (time.perf_counter() - began) / REPEATS * 1e6
        return found


def _weight(random: np.random.Generator, tensor: ExpectedTensor) -> Array:
    """Such that activations stay of one size through a matrix, as it is or of `q_weight` and `q_scale`."""
    shape = tuple(tensor.shape)
    if tensor.dtype == "uint32":
        return random.integers(0, 2**32, shape, dtype=np.uint32)
    if len(shape) == 1:
        numbers = 1 + 0.1 * random.standard_normal(shape)
    elif tensor.name.endswith("_scale"):
        numbers = random.random(shape) / (16 * shape[-1] ** 0.5)
    else:
        numbers = random.standard_normal(shape) / shape[-1] ** 0.5
    return np.asarray(numbers.astype(tensor.dtype))


def _absorbed(weights: Mapping[str, Array]) -> dict[str, Array]:
    """The parts of latent attention's matrix `kv_b_proj` by which it reads the cache, (heads, rank, keys) and (heads,
    values, rank): a model that stores them twice has to compute the same by both."""
    made = {}
    for name, keys in weights.items():
        if not name.endswith(".w_uk"):
            continue
        attention = name.removesuffix("w_uk")
        values = weights[f"{attention}w_uv"]
        stored = weights.get(f"{attention}kv_b_proj.weight")
        if stored is None:  # words of eight numbers from -7 to 8, and a scale for four words
            words, scales = (weights[f"{attention}kv_b_proj.q_{part}"] for part in ("weight", "scale"))
            codes = (words[..., None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
            numbers = codes.reshape(*scales.shape, 32).astype(np.float32) - 7
            stored = (numbers * scales[..., None].astype(np.float32)).reshape(words.shape[0], -1)
        each = stored.reshape(keys.shape[0], -1, keys.shape[1])
        made[name] = each[:, : keys.shape[2]].transpose(0, 2, 1).astype(keys.dtype)
        made[f"{attention}w_uv"] = each[:, keys.shape[2] :].astype(values.dtype)
    return made
