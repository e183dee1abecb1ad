"""`cpu`: the processors of a host, by LLVM."""

from __future__ import annotations

from mlcbuild.rules.backend import Backend, PlatformInfo
from mlcbuild.rules.host import HOST_ATTRIBUTES, host_target
from mlcbuild.rules.rule import RuleContext


def platform(context: RuleContext) -> PlatformInfo:
    return PlatformInfo(kind="cpu", target=host_target(context))


BACKEND = Backend(
    kind="cpu",
    doc="the processor of a host.",
    attributes=HOST_ATTRIBUTES,
    platform=platform,
    model_dtypes={"float32": "", "float16": "", "bfloat16": ""},
)
