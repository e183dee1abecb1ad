"""Language models whose sequences keep recurrent states alone, with the functions that a serving engine calls.

Entry functions and their arguments are MLC-LLM's. A pass that says where its sequences end, or of a token of each, may
be of any sequences; every other one is of one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.models.architecture.recurrent_model import RecurrentModelConfig
from mlcbuild.compiler.models.caches.recurrent_state import RecurrentState, create_recurrent_state
from mlcbuild.compiler.models.layers.recurrent_layer import RecurrentLayer
from mlcbuild.compiler.models.layers.spans import Spans, ending_at, one_sequence, one_token_each
from mlcbuild.compiler.models.networks.causal_lm import LanguageModel, last_token
from mlcbuild.compiler.models.networks.decoder import MakeLayer, SequenceState
from mlcbuild.compiler.models.networks.entry_functions import WITH_PARAMETERS, WITHOUT_PARAMETERS
from mlcbuild.compiler.quantization.reader import Reader, take
from mlcbuild.errors import StageError


def state_specification() -> dict[str, object]:
    """The arguments of `create_rnn_state`."""
    # A new dictionary each time, as `export_tvm` takes `$` out of it.
    return {"max_batch_size": int, "max_history": int, "$": WITHOUT_PARAMETERS}


def refuse_hidden_states(*, hidden_states: bool) -> None:
    """Raises StageError if functions for hidden states are wanted."""
    if hidden_states:
        raise StageError(
            "models with a recurrent state have no functions for hidden states: a draft cannot be taken back",
            advice=("leave hidden_states out",),
        )


class RecurrentLM(LanguageModel):
    """A model whose layers are recurrences alone."""

    def __init__(
        self,
        config: RecurrentModelConfig,
        reader: Reader,
        *,
        layers: Sequence[int],
        make_layer: MakeLayer = RecurrentLayer,
    ) -> None:
        super().__init__(config, reader, layers=layers, make_layer=make_layer)
        self._count = config.num_layers

    def prefill(self, input_embed: nn.Tensor, rnn_state: RecurrentState) -> tuple[nn.Tensor, RecurrentState]:
        """(1, n, hidden) → logits of the last token (1, 1, vocabulary)."""
        hidden, state = self._behind(input_embed, rnn_state, one_sequence(input_embed))
        return self.logits(last_token(hidden)), state

    def decode(self, input_embed: nn.Tensor, rnn_state: RecurrentState) -> tuple[nn.Tensor, RecurrentState]:
        """(1, 1, hidden) → (1, 1, vocabulary)."""
        hidden, state = self._behind(input_embed, rnn_state, one_token_each(input_embed))
        return self.logits(hidden), state

    def batch_prefill(
        self, input_embeds: nn.Tensor, logit_positions: nn.Tensor, rnn_state: RecurrentState
    ) -> tuple[nn.Tensor, RecurrentState]:
        """(1, n, hidden) of all sequences, one after another, and the positions (batch,) int32 of their last
        tokens → (1, batch, vocabulary)."""
        hidden, state = self._behind(input_embeds, rnn_state, ending_at(input_embeds, logit_positions))
        return self.logits(take(hidden, logit_positions, axis=1)), state

    def batch_decode(self, input_embeds: nn.Tensor, rnn_state: RecurrentState) -> tuple[nn.Tensor, RecurrentState]:
        """(batch, 1, hidden) → (batch, 1, vocabulary)."""
        hidden, state = self._behind(input_embeds, rnn_state, one_token_each(input_embeds))
        return self.logits(hidden), state

    def batch_verify(self, input_embeds: nn.Tensor, rnn_state: RecurrentState) -> tuple[nn.Tensor, RecurrentState]:
        """(1, n, hidden) of one sequence → logits of every token (1, n, vocabulary)."""
        hidden, state = self._behind(input_embeds, rnn_state, one_sequence(input_embeds))
        return self.logits(hidden), state

    def create_rnn_state(self, max_batch_size: tirx.Var, max_history: tirx.Var) -> RecurrentState:
        """An empty state; both arguments are integers given at run time."""
        return create_recurrent_state(
            self.vectors, layers=self._count, most_sequences=max_batch_size, most_history=max_history
        )

    def specification(self, *, hidden_states: bool = False) -> dict[str, dict[str, object]]:
        """The entry functions with their arguments, as `nn.Module.export_tvm` takes them. Raises StageError for
        `hidden_states`."""
        refuse_hidden_states(hidden_states=hidden_states)
        state = {"rnn_state": nn.spec.Object(object_type=RecurrentState), "$": WITH_PARAMETERS}
        positions = nn.spec.Tensor(["batch_size"], "int32")
        return {
            "embed": {"input_ids": nn.spec.Tensor(["seq_len"], "int32"), "$": WITH_PARAMETERS},
            "prefill": {"input_embed": self.embeds(1, "seq_len"), **state},
            "decode": {"input_embed": self.embeds(1, 1), **state},
            "batch_prefill": {"input_embeds": self.embeds(1, "seq_len"), "logit_positions": positions, **state},
            "batch_decode": {"input_embeds": self.embeds("batch_size", 1), **state},
            "batch_verify": {"input_embeds": self.embeds(1, "seq_len"), **state},
            "create_rnn_state": state_specification(),
        }

    def _behind(self, embeds: nn.Tensor, state: RecurrentState, spans: Spans) -> tuple[nn.Tensor, RecurrentState]:
        """(a, n, hidden) → the hidden states behind the last norm, and the states."""
        hidden, kept = self._decoder(embeds, SequenceState(recurrent=state, spans=spans))
        assert kept.recurrent is not None
        return hidden, kept.recurrent
