"""`platform`: what a library runs on."""

from __future__ import annotations

from mlcbuild.compiler.backends.cuda.architectures import in_order, problem
from mlcbuild.engine.action import JsonValue
from mlcbuild.rules.providers import PlatformInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

KINDS = ("cpu", "cuda")
# Every server processor that a GPU of these architectures has been sold with has this level.
_CPU_OF_A_GPU_HOST = {"x86_64": "x86-64-v3"}
# What every architecture since sm_75 has: a block's threads, its shared memory in bytes without asking for more, and
# the threads that run in step. They are named, because TVM would ask this machine's GPU for what is left out.
_DEVICE_LIMITS: dict[str, JsonValue] = {
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}


def implement(context: RuleContext) -> Providers:
    """TVM's target. Of a CPU: `kind` llvm, `mtriple`, `mcpu`, and `mattr` where there is any. Of a GPU: `kind` cuda,
    `arch` (the lowest, which kernels are scheduled for), the device's limits, and such a CPU as `host`. Nothing of
    this host gets in.
    """
    kind = context.target.string("kind")
    if kind == "cuda":
        return (_cuda(context),)
    for attribute in ("arch", "toolkit"):
        if context.target.has(attribute):
            raise context.error(f"a platform of kind {kind} has no {attribute}", attribute=attribute)
    return (PlatformInfo(kind=kind, target=_cpu(context, default="")),)


def _cuda(context: RuleContext) -> PlatformInfo:
    names = context.target.strings("arch")
    if not names:
        raise context.error(
            "no arch", attribute="kind", advice=('name the GPU architectures, for example arch = ["sm_80", "sm_90"]',)
        )
    for name in names:
        if (wrong := problem(name)) is not None:
            raise context.error(wrong[0], attribute="arch", advice=wrong[1])
    toolkit = context.target.optional_string("toolkit") or ""
    if toolkit and not toolkit.startswith("/"):
        raise context.error(
            f'toolkit "{toolkit}" is not absolute', attribute="toolkit", advice=('for example "/usr/local/cuda-13.0"',)
        )
    ordered = in_order(names)
    machine = context.target.string("host").partition("-")[0]
    host = _cpu(context, default=_CPU_OF_A_GPU_HOST.get(machine, ""))
    target: dict[str, JsonValue] = {"kind": "cuda", "arch": ordered[0], **_DEVICE_LIMITS, "host": host}
    return PlatformInfo(kind="cuda", target=target, architectures=ordered, toolkit=toolkit.rstrip("/"))


def _cpu(context: RuleContext, *, default: str) -> dict[str, JsonValue]:
    host = context.target.string("host")
    cpu = context.target.optional_string("cpu") or default
    if not cpu:
        raise context.error("no cpu", attribute="kind", advice=(f"name the processor of {host}, as LLVM does",))
    target: dict[str, JsonValue] = {"kind": "llvm", "mtriple": host, "mcpu": cpu}
    if features := context.target.strings("features"):
        target["mattr"] = sorted(features)
    return target


PLATFORM = Rule(
    schema=RuleSchema(
        name="platform",
        doc="What a library runs on. It says nothing of the machine that builds.",
        attributes=(
            Attribute(
                name="kind",
                kind=AttributeKind.CHOICE,
                allowed=KINDS,
                mandatory=True,
                doc="The kind of processor that computes. cuda needs the extra `mlcbuild[cuda]` where it is built, and "
                "no GPU, driver or toolkit.",
            ),
            Attribute(
                name="cpu",
                kind=AttributeKind.STRING,
                doc="The level or processor as LLVM names it: x86-64-v2, x86-64-v3, x86-64-v4, znver3, cortex-a76 … Of "
                "a GPU's host x86-64-v3 where left out; mandatory for a CPU.",
            ),
            Attribute(
                name="features",
                kind=AttributeKind.STRING_LIST,
                doc="Features to add or take away: +avx512vnni, -fma …",
            ),
            Attribute(
                name="host",
                kind=AttributeKind.STRING,
                default="x86_64-linux-gnu",
                doc="The triple of the code: architecture, system, environment.",
            ),
            Attribute(
                name="arch",
                kind=AttributeKind.STRING_LIST,
                doc="The GPU architectures that one library has machine code for: sm_80, sm_90, sm_90a … Kernels are "
                "scheduled once, for the lowest.",
            ),
            Attribute(
                name="toolkit",
                kind=AttributeKind.STRING,
                doc="The absolute path of a CUDA toolkit whose nvcc compiles device code. Left out: NVRTC, which "
                "`mlcbuild[cuda]` brings, even where a toolkit is installed.",
            ),
        ),
        provides=("platform",),
    ),
    implementation=implement,
)
