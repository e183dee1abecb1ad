"""`exported_layer`: one layer of a `model`, for compilers other than ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.engine.action import DerivedArtifact
from mlcbuild.rules.configured_model import configure
from mlcbuild.rules.families import model_plugins
from mlcbuild.rules.imported_weights import import_weights, imported_shards
from mlcbuild.rules.providers import FilesInfo, ModelInfo, Provider
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

GRAPH, JAX_SOURCE, TORCH_SOURCE, WEIGHTS = "layer.json", "layer_jax.py", "layer_torch.py", "weights.safetensors"
_SCHEME = "q0f32"  # what other compilers are given is float32
_WITHOUT_CACHE = ("none", "rnn_state")


@dataclass(frozen=True, kw_only=True)
class ExportedLayerInfo(Provider):
    """A layer as `onnx_model` takes it. The target's files have the same for `stablehlo_module` and `torch_model`, as
    Python files."""

    name: ClassVar[str] = "exported_layer"
    noun: ClassVar[str] = "exported_layer"

    graph: DerivedArtifact
    weights: DerivedArtifact


def implement(context: RuleContext) -> Providers:
    target = context.target
    model = context.required("model", ModelInfo)
    layer = target.integer("layer")
    _check(context, model, layer)
    configured = configure(context, model, quantization=_SCHEME)
    stage = configured.precision.stage("mlcbuild.compiler.stages.export_layer:run", "reader")
    exported = context.stage(
        "ExportLayer",
        stage.function,
        inputs={"model": configured.model, **stage.inputs},
        outputs={"graph": GRAPH, "jax_source": JAX_SOURCE, "torch_source": TORCH_SOURCE},
        parameters={
            "layer": layer,
            "tokens": target.integer("tokens"),
            "cache_tokens": target.integer("cache_tokens"),
        },
        plugins={"models": model_plugins(), **stage.plugins},
        toolchains=("tvm",),
    )
    graph = exported.output(f"out/{GRAPH}")
    import_weights(context, model, configured)
    weighed = context.stage(
        "LayerWeights",
        "mlcbuild.compiler.stages.layer_weights:run",
        inputs={
            "graph": graph,
            "parameters": configured.parameters,
            "shards": imported_shards(context, model).all,
        },
        outputs={"weights": WEIGHTS},
    )
    weights = weighed.output(f"out/{WEIGHTS}")
    return (
        FilesInfo(
            files=(
                (GRAPH, graph),
                (JAX_SOURCE, exported.output(f"out/{JAX_SOURCE}")),
                (TORCH_SOURCE, exported.output(f"out/{TORCH_SOURCE}")),
                (WEIGHTS, weights),
            )
        ),
        ExportedLayerInfo(graph=graph, weights=weights),
    )


def _check(context: RuleContext, model: ModelInfo, layer: int) -> None:
    """Report what config.json alone shows, where it is at hand."""
    if model.known is None:
        return
    description = model.known.description
    layers, label = description.layers, context.target.label_of("model")
    if layer >= layers.count:
        context.report(
            f"{label} has no layer {layer}",
            attribute="layer",
            advice=(f"it has {layers.count}, the first of which is 0",),
        )
    elif layers.kind(layer) in layers.recurrent or description.kv_state_kind in _WITHOUT_CACHE:
        context.report(f"layer {layer} of {label} has no attention over a KV cache", attribute="layer")


EXPORTED_LAYER = Rule(
    schema=RuleSchema(
        name="exported_layer",
        doc="One layer of a decoder, for other compilers: onnx_model, stablehlo_module and torch_model take it as "
        "their source. It is made of the family's own definition, of which libraries are made. Its inputs are hidden, "
        "positions and the layer's KV cache as plain tensors, past_keys and past_values; its outputs are output, and "
        "the keys and values of the new tokens. All numbers are float32.",
        attributes=(
            Attribute(name="model", kind=AttributeKind.LABEL, mandatory=True, provides=("model",), doc="The model."),
            Attribute(
                name="layer",
                kind=AttributeKind.INTEGER,
                minimum=0,
                default=0,
                doc="Its number; the first layer is 0.",
            ),
            Attribute(
                name="tokens",
                kind=AttributeKind.INTEGER,
                minimum=1,
                default=1,
                doc="How many new tokens a call has, of one text.",
            ),
            Attribute(
                name="cache_tokens",
                kind=AttributeKind.INTEGER,
                minimum=1,
                default=128,
                doc="How many tokens the KV cache has room for. Those at the first new token's position and behind are "
                "not looked at.",
            ),
        ),
        provides=("files", "exported_layer"),
    ),
    implementation=implement,
)
