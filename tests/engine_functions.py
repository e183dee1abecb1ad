"""What serving engines look up in a library, by kind of library, and what calls it as they do.

`FUNCTIONS` are the names that MLC-LLM's engine (`cpp/serve/function_table.cc`) and WebLLM (`llm_chat.ts`,
`embedding.ts`) ask a library for, `OF_WEB` those of WebLLM; docs/engines.md has them as a table. `tests.engine_checks`
calls each.
"""

from __future__ import annotations

import enum
import functools
import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlcbuild.errors import UsageError
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.machine import Machine
from tests.engine_weights import Array, random_weights


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


GRAPH_MEMORY = "cuda_graph_alloc_init"
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
    GRAPH_MEMORY: Presence.GPU,
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
OF_WEB = frozenset(
    {
        *("_metadata", "embed", "prefill", "decode", "batch_prefill", "batch_decode", "image_embed"),
        *("create_tir_paged_kv_cache", "create_rnn_state"),
        *("apply_bitmask_inplace", "apply_logit_bias_inplace", "apply_penalty_inplace"),
        *("softmax_with_temperature", "argsort_probs", "sample_with_top_p"),
    }
)
"""Those that WebLLM 0.2.83 asks for. It does without `image_embed`, and takes `prefill` and `decode` or, if one of them
is not there or the states are of both kinds, the batch's."""
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
        return OF_EMBEDDINGS[kind] | ({GRAPH_MEMORY} if gpu else set())
    present = {Presence.ALL}
    present |= {Presence.GPU} if gpu else set()
    present |= {Presence.HIDDEN_STATES} if hidden_states else set()
    present |= {Presence.PAGES} if kind.has_pages else set()
    present |= {Presence.RECURRENT} if kind.is_recurrent else set()
    return frozenset(name for name, presence in FUNCTIONS.items() if presence in present)


class Engine:
    """Calls of one library's functions, with what those took that are timed."""

    def __init__(self, machine: Machine, *, repeats: int = 0) -> None:
        """Calls are timed if they are repeated."""
        self.machine, self.repeats = machine, repeats
        self.metadata = json.loads(str(self.machine.entry("_metadata")()))
        self.vocabulary = int(self.metadata["vocab_size"])
        self.active = int(self.metadata["active_vocab_size"])
        self.took: dict[str, float] = {}
        if self.has(GRAPH_MEMORY):
            self.machine.entry(GRAPH_MEMORY)()

    @property
    def kind(self) -> Kind:
        """By what the metadata tells an engine."""
        if self.metadata["model_task"] == "embedding":
            is_encoder = self.metadata["embedding_metadata"]["model_type"] == "encoder"
            return Kind.ENCODER if is_encoder else Kind.EMBEDDING_DECODER
        kinds = {"kv_cache": Kind.PAGED, "rnn_state": Kind.RECURRENT, "hybrid": Kind.HYBRID}
        return kinds[self.metadata["kv_state_kind"]]

    @property
    def has_experts(self) -> bool:
        """Whether a router chooses experts for each token."""
        return any(item["name"].endswith((".gate.weight", ".router.weight")) for item in self.metadata["params"])

    @functools.cached_property
    def weights(self) -> Any:
        """Random ones, made once: a recorded CUDA graph reads those that it was recorded with."""
        expected = [ExpectedTensor.of(document) for document in self.metadata["params"]]
        made = random_weights(expected, str(self.metadata["quantization"]))
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
        if self.repeats == 0:
            return found
        began = time.perf_counter()
        for _ in range(self.repeats):
            function(*tensors)
        tensors[0].numpy()  # waits for all of them
        self.took[f"{name} × {len(arrays[0])}"] = (time.perf_counter() - began) / self.repeats * 1e6
        return found
