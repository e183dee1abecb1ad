"""ExportLayer: one layer of a model as a graph that compilers other than ours take, with the KV cache as plain inputs.

Reads `model` (model.json of ResolveModel). Writes `graph` (`layer_graph.graph`), and the same as Python files,
`jax_source` and `torch_source`. It needs no weights: LayerWeights writes those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mlcbuild.compiler.layer_graph.graph import write_graph
from mlcbuild.compiler.layer_graph.python_forms import jax_file, torch_file
from mlcbuild.compiler.layer_graph.tracing import trace_layer
from mlcbuild.compiler.models.compilable import AnyModelBuilder, build_model
from mlcbuild.compiler.models.description import read_model
from mlcbuild.compiler.quantization.reader import Reader
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.errors import StageError


def run(
    *,
    model: Path,
    graph: Path,
    jax_source: Path,
    torch_source: Path,
    models: Sequence[AnyModelBuilder],
    scheme: QuantizationScheme,
    reader: Callable[[QuantizationScheme], Reader],
    layer: int,
    tokens: int,
    cache_tokens: int,
) -> None:
    """`models`, `scheme` and its `reader` are plug-ins. Raises StageError for a layer that the model does not have,
    and for one with operators that only our kernels compute."""
    description = read_model(model)
    if layer >= description.layers.count:
        raise StageError(f"the model has no layer {layer}: it has {description.layers.count}, the first of which is 0")
    built = build_model(description, models, reader(scheme), layers=(layer,))
    traced = trace_layer(built, description, layer, tokens=tokens, cache_tokens=cache_tokens)
    write_graph(traced, graph)
    jax_source.write_text(jax_file(traced), encoding="utf-8")
    torch_source.write_text(torch_file(traced), encoding="utf-8")
