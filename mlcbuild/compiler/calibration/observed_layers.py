"""A decoder whose kinds of layers are entry functions, which take a layer's own parameters as arguments: so the weights
of one layer are in memory at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import relax, te
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.calibration.observation import (
    END,
    GRAM_ROWS,
    Input,
    Observation,
    Step,
    gram_function,
    layer_function,
)
from mlcbuild.compiler.calibration.observing_reader import ObservingReader
from mlcbuild.compiler.models.networks.causal_lm import CachedLM, CausalLM, cache_specification, values_of_positions
from mlcbuild.compiler.models.networks.entry_functions import WITHOUT_PARAMETERS
from mlcbuild.compiler.models.networks.outlining import bound

if TYPE_CHECKING:
    from mlcbuild.compiler.models.description import Layers
    from mlcbuild.compiler.models.layers.decoder_layer import DecoderLayer

_OPAQUE = 8  # TVM's number of kernels that fusion leaves alone


@dataclass(frozen=True, kw_only=True)
class _Method:
    """An entry function whose arguments are named by a list, as `nn.Module.export_tvm` asks a function for them."""

    names: tuple[str, ...]
    trace: Callable[..., object]

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in self.names])

    def __call__(self, *arguments: object) -> object:
        return self.trace(*arguments)


class ObservedLayers(nn.Module):  # type: ignore[misc]
    """The layers that `model` has, which are those of the numbers `shown`. `export` makes the module of all entry
    functions, and what Observe is told of them."""

    create_paged_kv_cache = CachedLM.create_paged_kv_cache

    def __init__(self, model: CausalLM, reader: ObservingReader, layers: Layers, shown: Sequence[int]) -> None:
        self._models = [model]  # in a list, because attributes that are modules have parameters
        self.geometry = replace(model.geometry, num_hidden_layers=1)  # a cache has room for one layer
        self._reader = reader
        self._layers = layers
        self._shown = tuple(shown)
        self._specification: dict[str, dict[str, object]] = {}
        self._steps: dict[str, Step] = {}

    def export(self) -> tuple[object, Observation]:
        model = self._models[0]
        config = model.config
        for place, layer in enumerate(model.decoder.layers):
            self._add_layer(place, layer)
        self._add_end()
        self._specification["create_paged_kv_cache"] = cache_specification()
        module, _ = self.export_tvm(spec=self._specification)
        steps = [self._steps[layer_function(place)] for place in range(len(self._shown))]
        grams = {each.width for step in (*steps, self._steps[END]) for each in step.inputs}
        module.update(_Grams(sorted(grams)).export())
        return module, Observation(
            layers=self._layers,
            embedding=f"{config.names.embedding}.weight",
            embedding_scale=config.embedding_scale,
            positions=f"{config.names.positions}.weight" if config.learned_positions else "",
            shown=self._shown,
            steps=tuple(steps),
            end=self._steps[END],
        )

    def _add_layer(self, place: int, layer: DecoderLayer) -> None:
        model, number = self._models[0], self._shown[place]
        prefix = f"{self._layers.name}.{place}."
        parameters = {
            f"{self._layers.name}.{number}.{name.removeprefix(prefix)}": parameter
            for name, parameter in model.named_parameters()
            if name.startswith(prefix)
        }

        def trace(hidden: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
            tokens = hidden.shape[0] * hidden.shape[1]
            more = [values_of_positions(cache, each, tokens) for each in layer.of_positions]
            normed = hidden if layer.first_norm is None else layer.first_norm(hidden)
            return layer.forward(hidden, normed, cache, relax.prim_value(0), None, *more)[0]

        self._add(layer_function(place), parameters, trace, cached=True)

    def _add_end(self) -> None:
        model = self._models[0]
        norm = model.decoder.norm
        prefix = f"{model.config.names.norm}."
        parameters = {name: one for name, one in model.named_parameters() if name.startswith(prefix)}

        def trace(hidden: nn.Tensor) -> nn.Tensor:
            normed = norm(hidden)
            self._reader.observed.append((normed, [model.head_name]))
            return normed

        self._add(END, parameters, trace, cached=False)

    def _add(
        self, name: str, parameters: dict[str, nn.Parameter], trace: Callable[..., nn.Tensor], *, cached: bool
    ) -> None:
        own = ["hidden", *(["paged_kv_cache"] if cached else [])]
        passed = [f"weight_{place}" for place in range(len(parameters))]

        def method(*arguments: nn.Tensor) -> object:
            given, weights = arguments[: len(own)], arguments[len(own) :]
            self._reader.observed.clear()
            with bound(list(parameters.values()), [weight._expr for weight in weights]):
                hidden = trace(*given)
            observed = list(self._reader.observed)
            self._reader.observed.clear()
            self._steps[name] = Step(
                parameters=tuple(parameters),
                inputs=tuple(Input(matrices=tuple(names), width=int(x.shape[-1])) for x, names in observed),
            )
            rows = [nn.op.reshape(x, (-1, int(x.shape[-1]))) for x, _ in observed]
            return (hidden, *rows)

        setattr(self, name, _Method(names=(*own, *passed), trace=method))
        hidden_size = self._models[0].hidden_size
        specification: dict[str, object] = {"hidden": nn.spec.Tensor([1, "seq_len", hidden_size], "float32")}
        if cached:
            specification["paged_kv_cache"] = nn.spec.Object(object_type=PagedKVCache)
        for argument, parameter in zip(passed, parameters.values(), strict=True):
            specification[argument] = nn.spec.Tensor(list(map(int, parameter.shape)), str(parameter.dtype))
        self._specification[name] = {**specification, "$": WITHOUT_PARAMETERS}


class _Grams(nn.Module):  # type: ignore[misc]
    """The functions that add rows to grams. A product of rows that are turned first is one that every backend has a
    kernel for."""

    def __init__(self, widths: Sequence[int]) -> None:
        self._widths = tuple(widths)

    def export(self) -> object:
        specification: dict[str, dict[str, object]] = {}
        for width in self._widths:
            name = gram_function(width)
            setattr(self, name, _Method(names=("gram", "rows"), trace=_added))
            specification[name] = {
                "gram": nn.spec.Tensor([width, width], "float32"),
                "rows": nn.spec.Tensor([GRAM_ROWS, width], "float32"),
                "$": WITHOUT_PARAMETERS,
            }
        return self.export_tvm(spec=specification)[0]


def _added(gram: nn.Tensor, rows: nn.Tensor) -> nn.Tensor:
    turned = nn.op.tensor_expr_op(_turned, "turn_rows", [rows], attrs={"op_pattern": _OPAQUE})
    return gram + nn.op.matmul(turned, nn.op.permute_dims(turned))


def _turned(rows: te.Tensor) -> te.Tensor:
    return te.compute((rows.shape[1], rows.shape[0]), lambda column, row: rows[row, column], name="turned")
