"""A decoder as a language model: embedding, layers, last norm and head, and the functions that an engine calls.

Entry functions, their arguments and the names of parameters are MLC-LLM's, so that its weights and its serving engine
fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.caches.kv_cache import KVCacheGeometry, create_placeholder, given_heads
from mlcbuild.compiler.models.caches.latent_cache import latent_geometry
from mlcbuild.compiler.models.caches.recurrent_state import StateVector
from mlcbuild.compiler.models.layers.decoder_layer import DecoderLayer
from mlcbuild.compiler.models.layers.placing import place
from mlcbuild.compiler.models.layers.recurrent_layer import RecurrentLayer
from mlcbuild.compiler.models.networks.decoder import Decoder, LanguageModelConfig, MakeLayer, SequenceState
from mlcbuild.compiler.models.networks.entry_functions import WITH_PARAMETERS, WITHOUT_PARAMETERS
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.layers import Linear
from mlcbuild.compiler.quantization.reader import Reader, take


def cache_specification() -> dict[str, object]:
    """The arguments of `CachedLM.create_paged_kv_cache`."""
    # A new dictionary each time, as `export_tvm` takes `$` out of it.
    return {
        "max_batch_size": int,
        "max_total_seq_len": int,
        "prefill_chunk_size": int,
        "page_size": int,
        "support_sliding_window": int,
        "$": WITHOUT_PARAMETERS,
    }


class LanguageModel(nn.Module):  # type: ignore[misc]
    """Layers between an embedding and a head: logits (batch, n, vocabulary) in float32. It has its layers of the
    numbers `layers` alone. `make_layer(config, reader, name=…)` makes a layer with the methods of `DecoderLayer`, of
    what the configuration's `of_layer` returns."""

    def __init__(
        self, config: LanguageModelConfig, reader: Reader, *, layers: Sequence[int], make_layer: MakeLayer
    ) -> None:
        self.config = config
        self._decoder = Decoder(config, reader, root=self, layers=layers, make_layer=make_layer)
        self.hidden_size = config.hidden_size
        self.model_dtype = reader.scheme.model_dtype
        self._head: list[Linear] = []  # in a list, because attributes that are modules have the names of parameters
        if config.head_apart or not config.tie_word_embeddings:
            head = Linear(
                config.hidden_size,
                config.vocab_size,
                reader=reader,
                role=ParameterRole.FINAL_FC,
                bias=config.head_bias,
                name=config.names.head,
            )
            self._head.append(head)
            place(self, config.names.head, head)

    @property
    def decoder(self) -> Decoder:
        return self._decoder

    @property
    def head_name(self) -> str:
        """The matrix by which hidden states become logits."""
        return f"{self.config.names.head if self._head else self.config.names.embedding}.weight"

    def logits(self, hidden: nn.Tensor) -> nn.Tensor:
        """(batch, n, hidden) → (batch, n, vocabulary), float32."""
        if self._head:
            logits = self._head[0](hidden, out_dtype="float32")
        else:
            logits = self._decoder.embedding.logits(hidden, out_dtype="float32")
        if self.config.logit_scale != 1.0:
            logits = logits * self.config.logit_scale
        cap = self.config.logit_softcap
        return nn.op.tanh(logits / cap) * cap if cap else logits

    def embed(self, input_ids: nn.Tensor) -> nn.Tensor:
        """(n,) int32 → (n, hidden)."""
        return self._decoder.embedding(input_ids)

    @property
    def vectors(self) -> tuple[StateVector, ...]:
        """The states that a recurrent layer keeps for a sequence; those of all are alike."""
        found = {layer.vectors for layer in self._decoder.layers if isinstance(layer, RecurrentLayer)}
        (vectors,) = found or {()}
        return vectors

    def embeds(self, *shape: int | str) -> nn.spec.Tensor:
        """The specification of embeddings (…, hidden)."""
        return nn.spec.Tensor([*shape, self.hidden_size], self.model_dtype)


class CachedLM(LanguageModel):
    """A decoder with layers of attention: their keys and values are in a cache with room for those of all."""

    def __init__(
        self,
        config: DecoderConfig,
        reader: Reader,
        *,
        layers: Sequence[int],
        make_layer: MakeLayer = DecoderLayer,
    ) -> None:
        super().__init__(config, reader, layers=layers, make_layer=make_layer)
        self.geometry = cache_geometry(config, dtype=reader.scheme.model_dtype)

    def create_paged_kv_cache(
        self,
        max_batch_size: tirx.Var,
        max_total_seq_len: tirx.Var,
        prefill_chunk_size: tirx.Var,
        page_size: tirx.Var,
        support_sliding_window: tirx.Var,
    ) -> PagedKVCache:
        """An empty cache; every argument is an integer given at run time."""
        return create_placeholder(
            self.geometry,
            (max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, support_sliding_window),
        )


class CausalLM(CachedLM):
    """A decoder whose layers are all layers of attention."""

    def _behind(self, embeds: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        """(batch, n, hidden) → the hidden states behind the last norm."""
        return self._decoder(embeds, SequenceState(cache=cache))[0]

    def prefill(self, input_embed: nn.Tensor, paged_kv_cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        """(1, n, hidden) → logits of the last token (1, 1, vocabulary)."""
        hidden = self._behind(input_embed, paged_kv_cache)
        return self.logits(last_token(hidden)), paged_kv_cache

    def decode(self, input_embed: nn.Tensor, paged_kv_cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        """(1, 1, hidden) → (1, 1, vocabulary)."""
        return self.logits(self._behind(input_embed, paged_kv_cache)), paged_kv_cache

    def batch_prefill(
        self, input_embeds: nn.Tensor, logit_positions: nn.Tensor, paged_kv_cache: PagedKVCache
    ) -> tuple[nn.Tensor, PagedKVCache]:
        """(1, n, hidden) of all sequences, one after another, and the positions (batch,) int32 of their last
        tokens → (1, batch, vocabulary)."""
        hidden = self._behind(input_embeds, paged_kv_cache)
        return self.logits(take(hidden, logit_positions, axis=1)), paged_kv_cache

    def batch_decode(self, input_embeds: nn.Tensor, paged_kv_cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        """(batch, 1, hidden) → (batch, 1, vocabulary)."""
        return self.logits(self._behind(input_embeds, paged_kv_cache)), paged_kv_cache

    def batch_verify(self, input_embeds: nn.Tensor, paged_kv_cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        """(1, n, hidden) → logits of every token (1, n, vocabulary)."""
        return self.logits(self._behind(input_embeds, paged_kv_cache)), paged_kv_cache

    def to_last_hidden_states(
        self, input_embeds: nn.Tensor, paged_kv_cache: PagedKVCache
    ) -> tuple[nn.Tensor, PagedKVCache]:
        """(a, n, hidden) → (a, n, hidden), of which `get_logits` makes what the other forward passes return."""
        return self._behind(input_embeds, paged_kv_cache), paged_kv_cache

    # An engine calls each forward pass by a name of its own.
    prefill_to_last_hidden_states = decode_to_last_hidden_states = to_last_hidden_states
    batch_prefill_to_last_hidden_states = batch_decode_to_last_hidden_states = to_last_hidden_states
    batch_verify_to_last_hidden_states = to_last_hidden_states

    def get_logits(self, hidden_states: nn.Tensor) -> nn.Tensor:
        """(n, hidden) → (n, vocabulary), float32."""
        return self.logits(hidden_states)

    # MLC-LLM's engine samples drafts by a draft model's own head if it has both names, and calls the first alone.
    batch_get_logits = get_logits

    def batch_select_last_hidden_states(self, hidden_states: nn.Tensor, logit_positions: nn.Tensor) -> nn.Tensor:
        """(n, hidden) and the positions (batch,) int32 of sequences' last tokens → (batch, hidden)."""
        return take(hidden_states, logit_positions, axis=0)

    def specification(self, *, hidden_states: bool = False) -> dict[str, dict[str, object]]:
        """The entry functions with their arguments, as `nn.Module.export_tvm` takes them; with `hidden_states` also
        those that return or take these."""
        kept = {"paged_kv_cache": nn.spec.Object(object_type=PagedKVCache), "$": WITH_PARAMETERS}
        positions = nn.spec.Tensor(["batch_size"], "int32")
        functions: dict[str, dict[str, object]] = {
            "embed": {"input_ids": nn.spec.Tensor(["seq_len"], "int32"), "$": WITH_PARAMETERS},
            "prefill": {"input_embed": self.embeds(1, "seq_len"), **kept},
            "decode": {"input_embed": self.embeds(1, 1), **kept},
            "batch_prefill": {"input_embeds": self.embeds(1, "seq_len"), "logit_positions": positions, **kept},
            "batch_decode": {"input_embeds": self.embeds("batch_size", 1), **kept},
            "batch_verify": {"input_embeds": self.embeds(1, "seq_len"), **kept},
            "create_paged_kv_cache": cache_specification(),
        }
        if hidden_states:
            rows = self.embeds("seq_len")
            inputs = {
                "prefill": self.embeds(1, "seq_len"),
                "decode": self.embeds(1, 1),
                "batch_prefill": self.embeds(1, "seq_len"),
                "batch_decode": self.embeds("batch_size", 1),
                "batch_verify": self.embeds(1, "seq_len"),
            }
            for name, given in inputs.items():
                functions[f"{name}_to_last_hidden_states"] = {"input_embeds": given, **kept}
            for name in ("get_logits", "batch_get_logits"):
                functions[name] = {"hidden_states": rows, "$": WITH_PARAMETERS}
            functions["batch_select_last_hidden_states"] = {
                "hidden_states": rows,
                "logit_positions": positions,
                "$": WITHOUT_PARAMETERS,
            }
        return functions


def cache_geometry(config: DecoderConfig, *, dtype: str) -> KVCacheGeometry:
    """What the KV cache of a decoder looks like."""
    attention = config.attention
    if attention.latent is not None:
        return latent_geometry(attention, layers=config.num_layers, dtype=dtype)
    return KVCacheGeometry(
        attention_kind=attention.kind.value,
        num_hidden_layers=config.num_layers - config.recurrent_layers,
        num_attention_heads=given_heads(attention),
        num_key_value_heads=attention.key_value_heads,
        head_dim=attention.head_dim,
        rotates=attention.rotary.in_cache,
        rope_theta=attention.rotary.base,
        rope_scale=attention.rotary.position_scale,
        rope_scaling=tuple(sorted(attention.rotary.tvm_scaling.items())) if attention.rotary.in_cache else (),
        dtype=dtype,
        rules=config.rules,
    )


def last_token(hidden: nn.Tensor) -> nn.Tensor:
    """(1, n, hidden) → (1, 1, hidden)."""

    def row(x: te.Tensor) -> te.Tensor:
        batch, length, width = x.shape
        return te.compute((batch, 1, width), lambda b, _, k: x[b, length - 1, k], name="last_token")

    return nn.op.tensor_expr_op(row, "last_token", [hidden])
