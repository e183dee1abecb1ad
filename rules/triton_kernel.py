"""`triton_kernel`: a kernel of the workspace's own, written in Triton, that stands for operators of models."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping, Sequence

from mlcbuild.compiler.operator_pattern import check_expression, parse_pattern, tensors_of
from mlcbuild.errors import WorkspaceError
from mlcbuild.rules import schemes
from mlcbuild.rules.backend import backends
from mlcbuild.rules.rule import Providers, Rule, RuleContext, is_named_object
from mlcbuild.rules.triton_kernels import JitFunction, TritonKernelInfo, jit_functions
from mlcbuild.suggestions import known_values
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_POINTER = re.compile(r"(\*(?:[iu](?:8|16|32|64)|i1|fp16|bf16|fp32|fp64|fp8e4nv|fp8e5))(:16)?")
_NUMBER = re.compile(r"(i32|i64)(:16)?")
_FORMS = ("a pointer is written *fp16, a number i32 or i64; :16 behind it says that it is divisible by 16",)


def implement(context: RuleContext) -> Providers:
    target = context.target
    kernel = _function(context)
    signature, constants = target.string_map("signature"), target.table("constexprs")
    _check_names(context, kernel, signature, constants)
    types = {name: _type(context, name, kind) for name, kind in signature.items()}
    tensors = _check_pattern(context, types)
    _check_sizes(context, kernel, types, tensors)
    _check_where(context)
    if context.errors:
        return ()
    order = [name for name in kernel.arguments if name in types]
    return (
        TritonKernelInfo(
            declared={
                "function": target.string("function"),
                "pattern": target.string("pattern"),
                "output": target.string("output"),
                "signature": [[name, types[name].removesuffix(":16")] for name in order],
                "aligned": [name for name in order if types[name].endswith(":16")],
                "constants": [[name, constants[name]] for name in kernel.arguments if name in constants],
                "arguments": dict(target.string_map("arguments")),
                "grid": list(target.strings("grid")),
                "warps": target.integer("warps"),
                "stages": target.integer("stages"),
            },
            architectures=target.strings("arch"),
            schemes=target.strings("quantization"),
        ),
    )


def _function(context: RuleContext) -> JitFunction:
    """The function as its file shows it. Raises WorkspaceError where there is none, and where Triton is not."""
    name = context.target.string("function")
    if not is_named_object(name):
        raise context.error(
            f'"{name}" is no function',
            attribute="function",
            advice=("write package.module:function; scale of kernels/own.py is kernels.own:scale",),
        )
    module, _, function = name.partition(":")
    source = context.module_source(module, attribute="function")
    try:
        importlib.metadata.distribution("triton")
    except importlib.metadata.PackageNotFoundError:
        raise context.error(
            "Triton is not installed, which compiles the kernel",
            attribute="function",
            advice=('run: python -m pip install "mlcbuild[triton]"',),
        ) from None
    try:
        known = jit_functions(source)
    except SyntaxError as error:
        raise context.error(f"{module} is no Python: {error.msg}, line {error.lineno}", attribute="function") from None
    if function not in known:
        raise context.error(
            f"{module} has no @triton.jit function {function}",
            attribute="function",
            advice=tuple(filter(None, (known_values(function, known, intro=f"{module} has"),))),
        )
    return known[function]


def _check_names(
    context: RuleContext, kernel: JitFunction, signature: Mapping[str, str], constants: Mapping[str, object]
) -> None:
    """Each argument has a type, or is a constant and has a value."""
    function = context.target.string("function").partition(":")[2]
    known = (known_values("", kernel.arguments, intro=f"{function} has"),)
    for attribute, given in (("signature", signature), ("constexprs", constants)):
        for name in given:
            if name not in kernel.arguments:
                _report(context, f"{function} has no argument {name}", attribute, name, known)
            elif (name in kernel.constants) != (attribute == "constexprs"):
                meant = "constexprs" if name in kernel.constants else "signature"
                _report(context, f"{name} belongs into {meant}", attribute, name)
    for name in kernel.arguments:
        if name in kernel.constants and name not in constants:
            context.report(f"the constexpr {name} of {function} has no value", attribute="constexprs")
        elif name not in kernel.constants and name not in signature:
            context.report(f"the argument {name} of {function} has no type", attribute="signature", advice=_FORMS)
    for name, value in constants.items():
        if not isinstance(value, int | float):
            _report(context, f"the constexpr {name} is neither a number nor true or false", "constexprs", name)


def _type(context: RuleContext, name: str, kind: str) -> str:
    if not (_POINTER.fullmatch(kind) or _NUMBER.fullmatch(kind)):
        _report(context, f'"{kind}" is no type of an argument', "signature", name, _FORMS)
    return kind


def _check_pattern(context: RuleContext, types: Mapping[str, str]) -> tuple[str, ...]:
    """The tensors that the kernel has: those of the pattern, and its result."""
    target = context.target
    output = target.string("output")
    try:
        read = tensors_of(parse_pattern(target.string("pattern")))
    except ValueError as error:
        context.report(str(error), attribute="pattern")
        return ()
    pointers = [name for name, kind in types.items() if kind.startswith("*")]
    if output in read:
        context.report(f"{output} is both a tensor of the pattern and the result", attribute="output")
    for attribute, names in (("pattern", read), ("output", (output,))):
        for name in names:
            if name not in pointers:
                advice = tuple(filter(None, (known_values(name, pointers, intro="pointers in the signature"),)))
                context.report(f"{name} is no pointer in the signature", attribute=attribute, advice=advice)
    for name in pointers:
        if name not in (*read, output):
            _report(context, f"{name} is neither in the pattern nor the result", "signature", name)
    return (*read, output)


def _check_sizes(context: RuleContext, kernel: JitFunction, types: Mapping[str, str], tensors: Sequence[str]) -> None:
    """Each number has an expression, and these and the grid can be computed."""
    arguments = context.target.string_map("arguments")
    numbers = [name for name, kind in types.items() if not kind.startswith("*")]
    for name in numbers:
        if name not in arguments and name in kernel.arguments and name not in kernel.constants:
            advice = (f'for example arguments = {{ {name} = "size(x)" }}',)
            context.report(f"the argument {name} has no value", attribute="arguments", advice=advice)
    for name, text in arguments.items():
        if name not in numbers:
            _report(context, f"{name} is no number in the signature", "arguments", name)
        elif tensors:
            _check(context, text, "arguments", name, tensors, kernel)
    grid = context.target.strings("grid")
    if len(grid) > 2:
        context.report(f"a grid of {len(grid)} sizes: it has one or two", attribute="grid")
    for number, text in enumerate(grid):
        if tensors:
            _check(context, text, "grid", number, tensors, kernel)


def _check(
    context: RuleContext,
    text: str,
    attribute: str,
    key: str | int,
    tensors: Sequence[str],
    kernel: JitFunction,
) -> None:
    try:
        check_expression(text, tensors, kernel.constants)
    except ValueError as error:
        _report(context, str(error), attribute, key)


def _check_where(context: RuleContext) -> None:
    target = context.target
    known = [arch for backend in backends().values() for arch in backend.triton_architectures]
    for arch in target.strings("arch"):
        if arch not in known:
            advice = (known_values(arch, known),)
            context.report(f'there are no kernels in Triton for "{arch}"', attribute="arch", advice=advice)
    warps = target.integer("warps")
    if warps & (warps - 1):
        context.report(f"warps = {warps} is no power of two", attribute="warps")


def _report(context: RuleContext, message: str, attribute: str, key: str | int, advice: tuple[str, ...] = ()) -> None:
    """Tell of a mistake at the place of a key, or an item, of an attribute."""
    origin = context.target.origin_of(attribute)
    location = context.target.location_of(attribute)
    if origin is not None:
        location = origin.at(key).key_location if isinstance(key, str) else origin.at(key).location
    context.errors.append(WorkspaceError(f"{message} in {context.label}", location=location, advice=advice))


TRITON_KERNEL = Rule(
    schema=RuleSchema(
        name="triton_kernel",
        doc="A kernel in Triton that stands for operators of models, in libraries that name it in `triton_kernels`. "
        "It needs the extra `mlcbuild[triton]`, and no GPU. `mlcbuild help own-kernels` has an example.",
        attributes=(
            Attribute(
                name="function",
                kind=AttributeKind.STRING,
                mandatory=True,
                doc="The `@triton.jit` function, `package.module:name`; its module is named by its path from the root.",
            ),
            Attribute(
                name="pattern",
                kind=AttributeKind.STRING,
                mandatory=True,
                nonempty=True,
                doc="The operators that it stands for, as a graph is shown: multiply(nn.silu(gate), up). Names that "
                "are not called are tensors, and arguments of the function.",
            ),
            Attribute(
                name="output",
                kind=AttributeKind.STRING,
                default="output",
                doc="The argument that the result is written to.",
            ),
            Attribute(
                name="signature",
                kind=AttributeKind.STRING_MAP,
                mandatory=True,
                nonempty=True,
                doc='The types of arguments in Triton\'s words, by name: "*fp16", "i32"; with ":16" behind it one is '
                "divisible by 16. Tensors of other types are not matched.",
            ),
            Attribute(
                name="constexprs",
                kind=AttributeKind.TABLE,
                doc="The values of the arguments that are `tl.constexpr`, by name: numbers, true or false.",
            ),
            Attribute(
                name="arguments",
                kind=AttributeKind.STRING_MAP,
                doc='The values of numbers, by name, from sizes of tensors: "size(x)", "x.shape[-1]", '
                '"cdiv(x.shape[0], BLOCK)".',
            ),
            Attribute(
                name="grid",
                kind=AttributeKind.STRING_LIST,
                mandatory=True,
                nonempty=True,
                doc="How many programs run: one or two such expressions.",
            ),
            Attribute(
                name="warps",
                kind=AttributeKind.INTEGER,
                default=4,
                minimum=1,
                maximum=32,
                doc="The warps of a program, a power of two.",
            ),
            Attribute(
                name="stages",
                kind=AttributeKind.INTEGER,
                default=2,
                minimum=1,
                maximum=16,
                doc="How many steps of a loop are on their way together (`num_stages`).",
            ),
            Attribute(
                name="arch",
                kind=AttributeKind.STRING_LIST,
                doc="The GPU architectures that it is for; libraries for others are built without it. Left out: all.",
            ),
            Attribute(
                name="quantization",
                kind=AttributeKind.STRING_LIST,
                allowed=schemes.NAMES,
                doc="The schemes of libraries that it is for. Left out: all.",
            ),
        ),
        provides=("triton_kernel",),
    ),
    implementation=implement,
)
