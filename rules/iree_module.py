"""`iree_module`: a model that IREE has compiled, for any device that it knows, without that device."""

from __future__ import annotations

from mlcbuild.engine.action import DerivedArtifact
from mlcbuild.rules.compiled_models import CompiledModelInfo
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.onnx_model import OnnxInfo
from mlcbuild.rules.processors import processor_error, triple_error
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.requirements import REQUIREMENTS, requirements_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.stablehlo_module import WEIGHTS, StableHloInfo
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

MODEL = Attribute(
    name="model",
    kind=AttributeKind.LABEL,
    mandatory=True,
    provides=("onnx", "stablehlo"),
    doc="The onnx_model or stablehlo_module.",
)
# Attribute → the flag that says its kind of the device, and those that say the device.
_DEVICES: dict[str, tuple[str, tuple[str, ...]]] = {
    "cuda_target": ("--iree-cuda-target", ("--iree-hal-target-device=cuda",)),
    "hip_target": ("--iree-rocm-target", ("--iree-hal-target-device=hip",)),
    "vulkan_target": ("--iree-vulkan-target", ("--iree-hal-target-device=vulkan",)),
    # Kernels stay source text, which the device's driver compiles: a library of them takes Apple's own compiler.
    "metal_target": (
        "--iree-metal-target-platform",
        ("--iree-hal-target-device=metal", "--iree-metal-compile-to-metallib=false"),
    ),
}


def implement(context: RuleContext) -> Providers:
    target = context.target
    stablehlo = context.provided(target.label_of(MODEL.name), StableHloInfo)
    environment = environment_with(context, "iree-base-compiler", *(() if stablehlo else ("onnx",)))
    if stablehlo is not None and len(stablehlo.platforms) != 1:
        context.report(
            f"{target.label_of(MODEL.name)} is for several platforms, and so asks its caller for the number of one",
            attribute=MODEL.name,
            advice=("name one in its platforms, such as cpu: IREE compiles it for any device",),
        )
    named = [name for name in ("cpu", *_DEVICES) if target.has(name)]
    if len(named) != 1:
        raise context.error(
            f"a module is for one device, and {' and '.join(named) or 'none'} is named",
            advice=(f"set one of cpu, {', '.join(_DEVICES)}",),
        )
    flags = _device_flags(context, named[0]) if named[0] in _DEVICES else _cpu_flags(context)
    compiled = environment_stage(
        context,
        "CompileIREE",
        "mlcbuild.compiler.environments.programs.compile_iree:run",
        environment=environment,
        inputs={"model": stablehlo.module if stablehlo else context.required(MODEL.name, OnnxInfo).model},
        outputs={"module": "model.vmfb"},
        parameters={"flags": flags, "is_onnx": stablehlo is None},
        requirements=requirements_of(target),
    )
    artifact: tuple[tuple[str, DerivedArtifact], ...] = (("model.vmfb", compiled.output("out/model.vmfb")),)
    if stablehlo is not None and stablehlo.weights is not None:
        artifact = (*artifact, (WEIGHTS, stablehlo.weights))
    if named[0] in _DEVICES or (stablehlo is not None and stablehlo.weights is None):
        return (FilesInfo(files=artifact),)
    return (
        FilesInfo(files=artifact),
        CompiledModelInfo(
            compiler="IREE",
            distribution="iree-base-runtime",
            artifact=artifact,
            environment=environment,
            runtime="mlcbuild.compiler.environments.runtimes.iree_vm:load",
        ),
    )


def _cpu_flags(context: RuleContext) -> list[str]:
    """IREE takes its own machine's processor, or the least that there is, where none is named."""
    triple, cpu = context.target.string("host"), context.target.string("cpu")
    if (wrong := triple_error(triple)) is not None:
        raise context.error(wrong[0], attribute="host", advice=wrong[1])
    if (wrong := processor_error(triple, cpu)) is not None:
        raise context.error(wrong[0], attribute="cpu", advice=wrong[1])
    return [
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        f"--iree-llvmcpu-target-triple={triple}",
        f"--iree-llvmcpu-target-cpu={cpu}",
    ]


def _device_flags(context: RuleContext, attribute: str) -> list[str]:
    kind, device = _DEVICES[attribute]
    first, *more = device
    return [first, f"{kind}={context.target.string(attribute)}", *more]


def _device(name: str, doc: str) -> Attribute:
    return Attribute(name=name, kind=AttributeKind.STRING, nonempty=True, doc=doc)


IREE_MODULE = Rule(
    schema=RuleSchema(
        name="iree_module",
        doc="A model compiled by IREE for one device. A runtime of the same version loads it.",
        attributes=(
            MODEL,
            ENVIRONMENT,
            _device("cpu", "The processor, as LLVM names it: x86-64-v3, znver4, neoverse-n1."),
            Attribute(
                name="host",
                kind=AttributeKind.STRING,
                default="x86_64-linux-gnu",
                doc="The triple of a processor: architecture, system, environment.",
            ),
            _device(
                "cuda_target", "An NVIDIA GPU as IREE 3.13 names it, such as sm_80, sm_89: PTX, which newer run too."
            ),
            _device("hip_target", "An AMD GPU: gfx90a, gfx942, gfx1100."),
            _device("vulkan_target", "A GPU for Vulkan, as IREE names it: ampere, rdna3."),
            _device("metal_target", "Apple's GPUs, by the system that has them: macos, ios, ios-simulator."),
            REQUIREMENTS,
        ),
        provides=("files", "compiled_model"),
    ),
    implementation=implement,
)
