"""Decoders whose sequences keep keys and values for some layers, and recurrent states for the others.

Entry functions and their arguments are those of MLC-LLM's hybrid models: the cache, then the states.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.caches.recurrent_state import RecurrentState, create_recurrent_state
from mlcbuild.compiler.models.layers.decoder_layer import DecoderLayer
from mlcbuild.compiler.models.layers.recurrent_layer import RecurrentLayer
from mlcbuild.compiler.models.layers.spans import Spans, ending_at, one_sequence, one_token_each
from mlcbuild.compiler.models.networks.causal_lm import CachedLM, CausalLM, cache_specification, last_token
from mlcbuild.compiler.models.networks.decoder import SequenceState
from mlcbuild.compiler.models.networks.entry_functions import WITH_PARAMETERS
from mlcbuild.compiler.models.networks.recurrent_lm import refuse_hidden_states, state_specification
from mlcbuild.compiler.quantization.reader import Reader, take

Both = tuple[nn.Tensor, PagedKVCache, RecurrentState]


class HybridLM(CachedLM):
    """A decoder some of whose layers are recurrences. The others have a cache, in which they are counted alone."""

    def __init__(self, config: DecoderConfig, reader: Reader, *, layers: Sequence[int]) -> None:
        super().__init__(config, reader, layers=layers, make_layer=_hybrid_layer)
        self._count = config.recurrent_layers

    def prefill(self, input_embed: nn.Tensor, paged_kv_cache: PagedKVCache, rnn_state: RecurrentState) -> Both:
        """(1, n, hidden) → logits of the last token (1, 1, vocabulary)."""
        hidden, state = self._behind(input_embed, paged_kv_cache, rnn_state, one_sequence(input_embed))
        return self.logits(last_token(hidden)), paged_kv_cache, state

    def decode(self, input_embed: nn.Tensor, paged_kv_cache: PagedKVCache, rnn_state: RecurrentState) -> Both:
        """(1, 1, hidden) → (1, 1, vocabulary)."""
        hidden, state = self._behind(input_embed, paged_kv_cache, rnn_state, one_token_each(input_embed))
        return self.logits(hidden), paged_kv_cache, state

    def batch_prefill(
        self,
        input_embeds: nn.Tensor,
        logit_positions: nn.Tensor,
        paged_kv_cache: PagedKVCache,
        rnn_state: RecurrentState,
    ) -> Both:
        """(1, n, hidden) of all sequences, one after another, and the positions (batch,) int32 of their last
        tokens → (1, batch, vocabulary)."""
        spans = ending_at(input_embeds, logit_positions)
        hidden, state = self._behind(input_embeds, paged_kv_cache, rnn_state, spans)
        return self.logits(take(hidden, logit_positions, axis=1)), paged_kv_cache, state

    def batch_decode(self, input_embeds: nn.Tensor, paged_kv_cache: PagedKVCache, rnn_state: RecurrentState) -> Both:
        """(batch, 1, hidden) → (batch, 1, vocabulary)."""
        hidden, state = self._behind(input_embeds, paged_kv_cache, rnn_state, one_token_each(input_embeds))
        return self.logits(hidden), paged_kv_cache, state

    def batch_verify(self, input_embeds: nn.Tensor, paged_kv_cache: PagedKVCache, rnn_state: RecurrentState) -> Both:
        """(1, n, hidden) of one sequence → logits of every token (1, n, vocabulary)."""
        hidden, state = self._behind(input_embeds, paged_kv_cache, rnn_state, one_sequence(input_embeds))
        return self.logits(hidden), paged_kv_cache, state

    def create_rnn_state(self, max_batch_size: tirx.Var, max_history: tirx.Var) -> RecurrentState:
        """An empty state; both arguments are integers given at run time."""
        return create_recurrent_state(
            self.vectors, layers=self._count, most_sequences=max_batch_size, most_history=max_history
        )

    def specification(self, *, hidden_states: bool = False) -> dict[str, dict[str, object]]:
        """The entry functions with their arguments, as `nn.Module.export_tvm` takes them. Raises StageError for
        `hidden_states`."""
        refuse_hidden_states(hidden_states=hidden_states)
        kept = {
            "paged_kv_cache": nn.spec.Object(object_type=PagedKVCache),
            "rnn_state": nn.spec.Object(object_type=RecurrentState),
            "$": WITH_PARAMETERS,
        }
        positions = nn.spec.Tensor(["batch_size"], "int32")
        return {
            "embed": {"input_ids": nn.spec.Tensor(["seq_len"], "int32"), "$": WITH_PARAMETERS},
            "prefill": {"input_embed": self.embeds(1, "seq_len"), **kept},
            "decode": {"input_embed": self.embeds(1, 1), **kept},
            "batch_prefill": {"input_embeds": self.embeds(1, "seq_len"), "logit_positions": positions, **kept},
            "batch_decode": {"input_embeds": self.embeds("batch_size", 1), **kept},
            "batch_verify": {"input_embeds": self.embeds(1, "seq_len"), **kept},
            "create_paged_kv_cache": cache_specification(),
            "create_rnn_state": state_specification(),
        }

    def _behind(
        self, embeds: nn.Tensor, cache: PagedKVCache, state: RecurrentState, spans: Spans
    ) -> tuple[nn.Tensor, RecurrentState]:
        """(a, n, hidden) → the hidden states behind the last norm, and the states."""
        hidden, kept = self._decoder(embeds, SequenceState(cache=cache, recurrent=state, spans=spans))
        assert kept.recurrent is not None
        return hidden, kept.recurrent


def _hybrid_layer(config: DecoderConfig, reader: Reader, *, name: str) -> DecoderLayer | RecurrentLayer:
    made = DecoderLayer if config.recurrence is None else RecurrentLayer
    return made(config, reader, name=name)


def hybrid_or_cached(config: DecoderConfig, reader: Reader, *, layers: Sequence[int]) -> CausalLM | HybridLM:
    """The model of a family some of whose models have no recurrent layers."""
    made = HybridLM if config.recurrent_layers else CausalLM
    return made(config, reader, layers=layers)
