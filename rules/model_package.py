"""`model_package`: library, weights, configuration and tokenizer in one directory that a serving engine loads."""

from __future__ import annotations

from mlcbuild.rules.automatic_precision import automatic_attributes, automatic_precision
from mlcbuild.rules.calibration import calibration_attributes
from mlcbuild.rules.model_library import LIBRARY_ATTRIBUTES, compile_library, configure_library, platform_of
from mlcbuild.rules.providers import ExecutableInfo, FilesInfo, ModelInfo, PackageInfo
from mlcbuild.rules.quantized_weights import ENCODE, quantize
from mlcbuild.rules.requantizing import ALLOW_REQUANTIZE
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import RuleSchema


def implement(context: RuleContext) -> Providers:
    model = context.required("model", ModelInfo)
    platform = platform_of(context)
    automatic = automatic_precision(context, model)
    chosen = None if automatic is None else automatic.precision
    configured = configure_library(context, model, platform, precision=chosen)
    weights = quantize(context, model, configured, automatic=automatic, encode=context.target.string("encode"))
    compiled = compile_library(context, model, configured, platform)
    assert model.tokenizer is not None  # a model with weights has a source, and a source has a tokenizer
    stage = configured.precision.stage("mlcbuild.compiler.stages.gen_config:run")
    generated = context.stage(
        "GenConfig",
        stage.function,
        inputs={"model": configured.model, "config": model.config, "tokenizer": model.tokenizer, **stage.inputs},
        outputs={"chat_config": "mlc-chat-config.json", "tokenizer_files": "tokenizer/"},
        plugins=stage.plugins,
    )
    files = FilesInfo(
        files=(
            ("", generated.output("out/tokenizer/")),
            ("", weights.shards),
            (f"lib{platform.library_suffix}", compiled.library),
            ("mlc-chat-config.json", generated.output("out/mlc-chat-config.json")),
            ("tensor-cache.json", weights.index),
            *configured.precision.files,
        )
    )
    return (compiled, weights, files, ExecutableInfo(), PackageInfo(platform=platform))


MODEL_PACKAGE = Rule(
    schema=RuleSchema(
        name="model_package",
        doc="Everything that running a model takes, in one directory; `mlcbuild run` generates text with it.",
        attributes=(*LIBRARY_ATTRIBUTES, ENCODE, ALLOW_REQUANTIZE, *calibration_attributes(), *automatic_attributes()),
        provides=("library", "weights", "files", "executable", "package"),
    ),
    implementation=implement,
)
