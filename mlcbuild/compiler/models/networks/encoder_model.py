"""An encoder on TVM's `relax.frontend.nn`, with the function that an engine calls for embeddings: MLC-LLM's `prefill`
of its BERT. Names of parameters are MLC-LLM's.

Texts are padded to one length. All but attention computes on tokens one after another, whatever text they are of: so
kernels are those of decoders.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax, te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.encoder import LAYERS, QKV, EncoderConfig
from mlcbuild.compiler.models.layers.feed_forward import FeedForward
from mlcbuild.compiler.models.layers.masked_attention import masked_attention
from mlcbuild.compiler.models.layers.norm import make_norm
from mlcbuild.compiler.models.layers.placing import place
from mlcbuild.compiler.models.networks.entry_functions import WITH_PARAMETERS
from mlcbuild.compiler.models.networks.outlining import Outliner
from mlcbuild.compiler.quantization.layers import Embedding, Linear
from mlcbuild.compiler.quantization.reader import Reader
from mlcbuild.errors import StageError

_OUTPUT = "attention.output.dense"
_ATTENTION_NORM = "attention.output.LayerNorm"
_FEED_FORWARD_NORM = "output.LayerNorm"
_FEED_FORWARD = DecoderNames(up="intermediate.dense", down="output.dense")
EMBEDDINGS_NORM = "embeddings.LayerNorm"


def table_name(kind: str) -> str:
    """The module of the embeddings of a kind: `word`, `position` or `token_type`."""
    return f"embeddings.{kind}_embeddings"


class EncoderLayer(nn.Module):  # type: ignore[misc]
    """The layer called `name`: x' = norm(x + attention(x)); norm'(x' + feed-forward(x'))."""

    def __init__(self, config: EncoderConfig, reader: Reader, *, name: str) -> None:
        hidden, dtype = config.hidden_size, reader.scheme.model_dtype
        self._heads = config.heads
        self._feed_forward = FeedForward(config.feed_forward, _FEED_FORWARD, hidden, reader, layer=name)
        self._parts: dict[str, nn.Module] = {
            QKV: Linear(hidden, 3 * hidden, reader=reader, bias=True, name=f"{name}.{QKV}"),
            _OUTPUT: Linear(hidden, hidden, reader=reader, bias=True, name=f"{name}.{_OUTPUT}"),
            _ATTENTION_NORM: make_norm(config.norm, hidden, dtype=dtype),
            **self._feed_forward.modules,
            _FEED_FORWARD_NORM: make_norm(config.norm, hidden, dtype=dtype),
        }
        for own_name, module in self._parts.items():
            place(self, own_name, module)

    def forward(self, hidden: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
        """(1, tokens, hidden) of texts with a `mask` (texts, length) → the same."""
        parts = self._parts
        attended = parts[_OUTPUT](masked_attention(parts[QKV](hidden), mask, heads=self._heads))
        hidden = parts[_ATTENTION_NORM](attended + hidden)
        return parts[_FEED_FORWARD_NORM](self._feed_forward(hidden) + hidden)

    @property
    def parts(self) -> list[nn.Module]:
        """What has the parameters that `forward` reads."""
        return list(self._parts.values())


class Encoder(nn.Module):  # type: ignore[misc]
    """Embeddings of tokens, positions and types, and the layers of the numbers `layers`."""

    def __init__(self, config: EncoderConfig, reader: Reader, *, layers: Sequence[int]) -> None:
        self._config = config
        self._dtype = reader.scheme.model_dtype
        hidden = config.hidden_size
        rows = {"word": config.vocab_size, "position": config.positions, "token_type": config.token_types}
        self._tables: list[Embedding] = []  # in lists, because attributes that are modules have the names of parameters
        for kind, count in rows.items():
            name = table_name(kind)
            self._tables.append(Embedding(count, hidden, reader=reader, name=name))
            place(self, name, self._tables[-1])
        self._norm = [make_norm(config.norm, hidden, dtype=self._dtype)]
        place(self, EMBEDDINGS_NORM, self._norm[0])
        self._layers = [EncoderLayer(config, reader, name=f"{LAYERS}.{number}") for number in layers]
        self._kinds = [reader.layer_kind(f"{LAYERS}.{number}") for number in layers]
        place(self, LAYERS, nn.ModuleList(self._layers))
        self._outliners = [Outliner("embeddings"), Outliner("encoder_layer")]

    @property
    def config(self) -> EncoderConfig:
        return self._config

    @property
    def embeddings_norm(self) -> nn.Module:
        """The norm of the sum of a token's embeddings."""
        return self._norm[0]

    @property
    def layers(self) -> Sequence[EncoderLayer]:
        return self._layers

    def prefill(self, inputs: nn.Tensor, attention_mask: nn.Tensor) -> nn.Tensor:
        """Tokens (batch_size, seq_len) int32, of which those count whose mask is not 0 → their hidden states behind the
        last layer (batch_size, seq_len, hidden)."""
        texts, length = inputs.shape
        count, tokens = texts * length, tirx.Var("tokens", "int64")
        numbers = relax.TensorType((tokens,), "int32")
        given = [nn.op.reshape(each, (count,))._expr for each in (inputs, self._positions(inputs))]

        def embedded(ids: relax.Var, positions: relax.Var) -> tuple[nn.Tensor]:
            return (self._embedded(nn.Tensor(_expr=ids), nn.Tensor(_expr=positions)),)

        parts = [*self._tables, *self._norm]
        (made,) = self._outliners[0].call(parts, embedded, given, types=(numbers, numbers))
        rows = relax.TensorType((1, tokens, self._config.hidden_size), self._dtype)
        for layer, kind in zip(self._layers, self._kinds, strict=True):

            def computed(hidden: relax.Var, mask: relax.Var, layer: EncoderLayer = layer) -> tuple[nn.Tensor]:
                return (layer.forward(nn.Tensor(_expr=hidden), nn.Tensor(_expr=mask)),)

            given = [made, attention_mask._expr]
            (made,) = self._outliners[1].call(layer.parts, computed, given, kind=kind, types=(rows,))
        return nn.op.reshape(nn.Tensor(_expr=made), (texts, length, self._config.hidden_size))

    def _embedded(self, ids: nn.Tensor, positions: nn.Tensor) -> nn.Tensor:
        """(tokens,) of each → (1, tokens, hidden)."""
        words, places, types = self._tables
        first_type = nn.op.zeros((1,), dtype="int32")
        hidden = words(ids) + places(positions) + types(first_type)
        tokens, width = hidden.shape
        return self._norm[0](nn.op.reshape(hidden, (1, tokens, width)))

    def _positions(self, inputs: nn.Tensor) -> nn.Tensor:
        """The rows (batch_size, seq_len) of the table of positions."""
        padding = self._config.padding_token

        def compute(ids: te.Tensor) -> te.Tensor:
            if padding is None:
                return te.compute(ids.shape, lambda _, place: place.astype("int32"), name="positions")
            before = te.reduce_axis((0, ids.shape[1]), "before")

            def counted(text: tirx.Var, place: tirx.Var) -> tirx.Expr:
                counts = tirx.all(before <= place, ids[text, before] != padding)
                return te.sum(counts.astype("int32"), axis=before)

            count = te.compute(ids.shape, counted, name="count")

            def position(text: tirx.Var, place: tirx.Var) -> tirx.Expr:
                own = tirx.if_then_else(ids[text, place] != padding, count[text, place], tirx.const(0, "int32"))
                return own + padding

            return te.compute(ids.shape, position, name="positions")

        return nn.op.tensor_expr_op(compute, "positions", [inputs])

    def specification(self, *, hidden_states: bool = False) -> dict[str, dict[str, object]]:
        """The entry function with its arguments, as `nn.Module.export_tvm` takes it. Raises StageError for
        `hidden_states`: those of an encoder are its results."""
        if hidden_states:
            raise StageError(
                "an encoder has no functions besides prefill, which returns hidden states",
                advice=("leave hidden_states out",),
            )
        numbers = nn.spec.Tensor(["batch_size", "seq_len"], "int32")
        return {"prefill": {"inputs": numbers, "attention_mask": numbers, "$": WITH_PARAMETERS}}
