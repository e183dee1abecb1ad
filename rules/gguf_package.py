"""`gguf_package`: a model in one GGUF file, which llama.cpp and what is built on it load.

The actions of `quantized_weights` → DescribeGGUF → WriteGGUF: the same shards as in a `model_package`, repacked.
"""

from __future__ import annotations

from mlcbuild.engine.action import Artifact
from mlcbuild.rules import schemes
from mlcbuild.rules.calibration import calibration_attributes
from mlcbuild.rules.configured_model import ConfiguredModel, configure
from mlcbuild.rules.exact_formats import check_exact, check_gguf
from mlcbuild.rules.families import family_plugins
from mlcbuild.rules.providers import FilesInfo, ModelInfo, WeightsInfo
from mlcbuild.rules.quantized_weights import QUANTIZATION, quantize
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    model, quantization = context.required("model", ModelInfo), context.target.string("quantization")
    check_exact(context, quantization, format_name="GGUF")
    check_gguf(context, model)
    configured = configure(context, model, quantization=quantization)
    weights = quantize(context, model, configured, quantization=quantization, encode="raw")
    name = f"{context.label.name.rpartition('/')[2]}.gguf"
    return (FilesInfo(files=((name, _write(context, model, configured, weights, quantization)),)),)


def _write(
    context: RuleContext, model: ModelInfo, configured: ConfiguredModel, weights: WeightsInfo, quantization: str
) -> Artifact:
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
    written = context.stage(
        "WriteGGUF",
        "mlcbuild.compiler.stages.write_gguf:run",
        inputs={
            "header": described.output("out/header.json"),
            "parameters": configured.parameters,
            "index": weights.index,
            "shards": weights.shards,
        },
        outputs={"gguf": "model.gguf"},
        plugins={"scheme": schemes.plugin(quantization), "encoder": schemes.scheme(quantization).encoder},
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
            *calibration_attributes(),
        ),
        provides=("files",),
    ),
    implementation=implement,
)
