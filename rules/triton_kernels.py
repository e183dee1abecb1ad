"""A workspace's own kernels in Triton: what a target that is one provides, and which of them a library is given."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.engine.action import JsonValue
from mlcbuild.rules.backend import PlatformInfo
from mlcbuild.rules.providers import Provider
from mlcbuild.rules.rule import RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind

TRITON_KERNELS = Attribute(
    name="triton_kernels",
    kind=AttributeKind.LABEL_LIST,
    provides=("triton_kernel",),
    doc="Kernels of the workspace's own that are written in Triton. Each stands for the operators of its pattern, in "
    "this order. The platform needs kernels in Triton.",
)


@dataclass(frozen=True, kw_only=True)
class TritonKernelInfo(Provider):
    """A kernel in Triton. `declared` is what the pass DispatchTritonKernel has to know of it; it is for these
    `architectures` and `schemes`, all where there are none."""

    name: ClassVar[str] = "triton_kernel"
    noun: ClassVar[str] = "triton_kernel"

    declared: Mapping[str, JsonValue]
    architectures: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class JitFunction:
    """A function of Triton's as its file shows it: the names of its arguments, and which are constants."""

    arguments: tuple[str, ...]
    constants: tuple[str, ...]


def jit_functions(source: bytes) -> Mapping[str, JitFunction]:
    """The `@triton.jit` functions at the top of a file. Raises SyntaxError for what is no Python."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and any(_is_jit(each) for each in node.decorator_list):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            found[node.name] = JitFunction(
                arguments=tuple(each.arg for each in arguments),
                constants=tuple(each.arg for each in arguments if _is_constant(each.annotation)),
            )
    return found


def _is_jit(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rpartition(".")[2] == "jit"


def _is_constant(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation).strip("'\"").rpartition(".")[2] == "constexpr"


def kernels_of(context: RuleContext, platform: PlatformInfo, schemes: Sequence[str]) -> tuple[TritonKernelInfo, ...]:
    """The kernels that a target with TRITON_KERNELS is given, those for its architecture and schemes. It is no legal
    target for a platform that has no kernels in Triton."""
    labels = context.target.labels("triton_kernels")
    named = [info for label in labels if (info := context.provided(label, TritonKernelInfo)) is not None]
    if not named:
        return ()
    arch = platform.triton_architecture
    if not arch:
        context.report_illegal(
            f"the platform {context.target.platform} has no kernels in Triton",
            attribute="triton_kernels",
            advice=('a platform of kind cuda has, with kernels = "triton" and one architecture',),
        )
        return ()
    return tuple(
        info
        for info in named
        if (not info.architectures or arch in info.architectures)
        and (not info.schemes or not set(info.schemes).isdisjoint(schemes))
    )
