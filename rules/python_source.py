"""A model as a function of a Python file: the attributes that name it, what programs are told, and its weights."""

from __future__ import annotations

from collections.abc import Mapping

from mlcbuild.engine.action import JsonValue
from mlcbuild.rules.exported_layer import ExportedLayerInfo
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind

_WEIGHTS_ENDING = ".safetensors"


def source_attributes(*, imports: str, returns: str, takes_layers: bool = False) -> tuple[Attribute, ...]:
    """`source`, `function` and `arguments`: a file that imports a package, and what its function returns."""
    return (
        Attribute(
            name="source",
            kind=AttributeKind.LABEL,
            allow_files=True,
            mandatory=True,
            doc=f"A Python file, which imports {imports} and what else the environment has"
            f"{'; or an exported_layer' if takes_layers else ''}.",
        ),
        Attribute(
            name="function", kind=AttributeKind.STRING, default="model", doc=f"A function of it. It returns {returns}"
        ),
        Attribute(name="arguments", kind=AttributeKind.TABLE, doc="Arguments for the function: { layers = 2 }."),
    )


def source_of(context: RuleContext, of_layer: str = "") -> tuple[FilesInfo, Mapping[str, JsonValue]]:
    """The file, of an exported layer the one that is called `of_layer`, which is "" for a rule that takes none, and the
    parameters `function` and `arguments` of a program that calls it."""
    target = context.target
    source = context.files(target.label_of("source"))
    if context.provided(target.label_of("source"), ExportedLayerInfo) is not None:
        source = FilesInfo(files=tuple(each for each in source.files if each[0] == of_layer))
    if not source.is_single_file or not source.files[0][0].endswith(".py"):
        raise context.error("source is not one Python file", attribute="source")
    function = target.string("function")
    if not function.isidentifier():
        context.report(f'"{function}" is no name of a function', attribute="function")
    return source, {"function": function, "arguments": dict(target.table("arguments"))}


def weights_of(context: RuleContext) -> list[FilesInfo]:
    """The safetensors files that the attribute `weights` names; there is one at the least."""
    files = context.files(context.target.label_of("weights")).files
    found = [FilesInfo(files=(each,)) for each in files if each[0].endswith(_WEIGHTS_ENDING)]
    if not found:
        raise context.error(f"weights has no file that ends in {_WEIGHTS_ENDING}", attribute="weights")
    return found
