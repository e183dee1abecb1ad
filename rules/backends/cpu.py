"""`cpu`: the processors of a host, by LLVM."""

from __future__ import annotations

from mlcbuild.rules.backend import Backend, PlatformInfo
from mlcbuild.rules.host import CPU_OF_A_DEVICE_HOST, HOST_ATTRIBUTES, host_target
from mlcbuild.rules.rule import RuleContext


def platform(context: RuleContext) -> PlatformInfo:
    return PlatformInfo(kind="cpu", target=host_target(context))


BACKEND = Backend(
    kind="cpu",
    doc="the processor of a host.",
    attributes=HOST_ATTRIBUTES,
    platform=platform,
    kv_state_kinds=("kv_cache", "rnn_state", "hybrid", "none"),
    sliding_windows=True,
    model_dtypes={"float32": "", "float16": "", "bfloat16": ""},
    proposed_quantizations=("q4f32_1", "q0f32"),
    platforms={
        "cpu": {"cpu": CPU_OF_A_DEVICE_HOST["x86_64"]},
        "x86-64-v2": {"cpu": "x86-64-v2"},
        "x86-64-v3": {"cpu": "x86-64-v3"},
        "x86-64-v4": {"cpu": "x86-64-v4"},
        "neoverse-n1": {"host": "aarch64-linux-gnu", "cpu": "neoverse-n1"},
        "neoverse-v2": {"host": "aarch64-linux-gnu", "cpu": "neoverse-v2"},
    },
)
