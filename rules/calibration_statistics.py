"""`calibration_statistics`: what a model's matrices are multiplied by, while it reads a calibration_text.

ConfigureModel → ImportWeights, and SampleTexts → Observe (one a shard of the sample) → MergeStatistics, with a library
of their own (`rules.calibration`).
"""

from __future__ import annotations

from mlcbuild.rules.calibration import OBSERVED_SCHEME, CalibrationTextInfo, observe_model
from mlcbuild.rules.configured_model import configure
from mlcbuild.rules.imported_weights import import_weights, imported_shards
from mlcbuild.rules.providers import FilesInfo, ModelInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    model, text = context.required("model", ModelInfo), context.required("text", CalibrationTextInfo)
    configured = configure(context, model, quantization=OBSERVED_SCHEME)
    import_weights(context, model, configured)
    shards = imported_shards(context, model).all
    statistics = observe_model(context, model, text, parameters=configured.parameters, shards=shards)
    return (FilesInfo(files=(("", statistics),)),)


CALIBRATION_STATISTICS = Rule(
    schema=RuleSchema(
        name="calibration_statistics",
        doc="What a model's matrices are multiplied by while it reads a calibration_text: sums for each input of a "
        "layer, which all schemes and methods of calibration share. For whoever wants to look at them.",
        attributes=(
            Attribute(name="model", kind=AttributeKind.LABEL, mandatory=True, provides=("model",), doc="The model."),
            Attribute(
                name="text",
                kind=AttributeKind.LABEL,
                mandatory=True,
                provides=(CalibrationTextInfo.name,),
                doc="The calibration_text that it reads.",
            ),
        ),
        provides=("files",),
    ),
    implementation=implement,
)
