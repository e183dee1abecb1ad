"""`compressed_tensors_package`: a model as a checkpoint that vLLM, SGLang and transformers load.

The actions of `quantized_weights` → WriteCompressedTensors: the same shards as in a `model_package`, repacked.
"""

from __future__ import annotations

from mlcbuild.rules.calibration import calibration_attributes
from mlcbuild.rules.configured_model import configure
from mlcbuild.rules.exact_formats import check_compressed_tensors
from mlcbuild.rules.precision import QUANTIZATION
from mlcbuild.rules.providers import FilesInfo, ModelInfo
from mlcbuild.rules.quantized_weights import quantize
from mlcbuild.rules.requantizing import ALLOW_REQUANTIZE
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    model = context.required("model", ModelInfo)
    configured = configure(context, model)
    check_compressed_tensors(context, model, configured.precision.names)
    weights = quantize(context, model, configured, encode="raw")
    assert model.tokenizer is not None  # a model with weights has a source, and a source has a tokenizer
    stage = configured.precision.stage("mlcbuild.compiler.stages.write_compressed_tensors:run", "encoder")
    written = context.stage(
        "WriteCompressedTensors",
        stage.function,
        inputs={
            "config": model.config,
            "parameters": configured.parameters,
            "index": weights.index,
            "shards": weights.shards,
            **stage.inputs,
        },
        outputs={"config_out": "config.json", "checkpoint": "checkpoint/"},
        plugins=stage.plugins,
    )
    files = FilesInfo(
        files=(
            ("", model.tokenizer),
            ("", written.output("out/checkpoint/")),
            ("config.json", written.output("out/config.json")),
            *configured.precision.files,
        )
    )
    return (files,)


COMPRESSED_TENSORS_PACKAGE = Rule(
    schema=RuleSchema(
        name="compressed_tensors_package",
        doc="A model as a checkpoint in Hugging Face's form, which vLLM, SGLang and transformers load: the weights of "
        "a `model_package`, repacked for compressed-tensors without being rounded again, with the tokenizer's files.",
        attributes=(
            Attribute(name="model", kind=AttributeKind.LABEL, mandatory=True, provides=("model",), doc="The model."),
            QUANTIZATION,
            ALLOW_REQUANTIZE,
            *calibration_attributes(),
        ),
        provides=("files",),
    ),
    implementation=implement,
)
