"""`gguf_package`: a model in one GGUF file, which llama.cpp and what is built on it load.

The actions of `quantized_weights` → DescribeGGUF → WriteGGUF: the same shards as in a `model_package`, repacked.
"""

from __future__ import annotations

from mlcbuild.engine.action import Artifact
from mlcbuild.rules.automatic_precision import automatic_attributes, automatic_precision
from mlcbuild.rules.calibration import calibration_attributes
from mlcbuild.rules.configured_model import ConfiguredModel, configure
from mlcbuild.rules.exact_formats import check_gguf, check_gguf_quantization
from mlcbuild.rules.families import family_plugins
from mlcbuild.rules.precision import QUANTIZATION
from mlcbuild.rules.providers import FilesInfo, ModelInfo, WeightsInfo
from mlcbuild.rules.quantized_weights import quantize
from mlcbuild.rules.requantizing import ALLOW_REQUANTIZE
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_CANDIDATES = ("q4f16_1", "q8f16_1", "q0f16")  # GGUF has an exact form of these


def implement(context: RuleContext) -> Providers:
    model = context.required("model", ModelInfo)
    check_gguf(context, model)
    automatic = automatic_precision(context, model)
    configured = configure(context, model, quantization=None if automatic is None else automatic.precision)
    for scheme in configured.precision.names:
        check_gguf_quantization(context, scheme)
    weights = quantize(context, model, configured, automatic=automatic, encode="raw")
    name = f"{context.label.name.rpartition('/')[2]}.gguf"
    written = _write(context, model, configured, weights)
    return (FilesInfo(files=((name, written), *configured.precision.files)),)


def _write(context: RuleContext, model: ModelInfo, configured: ConfiguredModel, weights: WeightsInfo) -> Artifact:
    assert model.tokenizer is not None  # a model with weights has a source, and a source has a tokenizer
    described = context.stage(
        "DescribeGGUF",
        "mlcbuild.compiler.stages.describe_gguf:run",
        inputs={
            "model": model.model,
            "parameters": configured.parameters,
            "config": model.config,
            "tokenizer": model.tokenizer,
        },
        outputs={"header": "header.json"},
        plugins={"families": family_plugins()},
    )
    stage = configured.precision.stage("mlcbuild.compiler.stages.write_gguf:run", "encoder")
    written = context.stage(
        "WriteGGUF",
        stage.function,
        inputs={
            "header": described.output("out/header.json"),
            "parameters": configured.parameters,
            "index": weights.index,
            "shards": weights.shards,
            **stage.inputs,
        },
        outputs={"gguf": "model.gguf"},
        plugins=stage.plugins,
    )
    return written.output("out/model.gguf")


GGUF_PACKAGE = Rule(
    schema=RuleSchema(
        name="gguf_package",
        doc="A model in one GGUF file, which llama.cpp loads: the weights of a `model_package`, repacked without being "
        "rounded again, with the vocabulary and the chat template.",
        attributes=(
            Attribute(name="model", kind=AttributeKind.LABEL, mandatory=True, provides=("model",), doc="The model."),
            QUANTIZATION,
            ALLOW_REQUANTIZE,
            *calibration_attributes(),
            *automatic_attributes(_CANDIDATES),
        ),
        provides=("files",),
    ),
    implementation=implement,
)
