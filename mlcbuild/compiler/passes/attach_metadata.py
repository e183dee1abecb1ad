"""AttachMetadataWithMemoryUsage: the function by which a library tells what a serving engine has to know of it."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax

from mlcbuild.compiler import metadata as metadata_file

NAME = "_metadata"


def attach_metadata(module: tvm.IRModule, document: Mapping[str, object]) -> tvm.IRModule:
    """Add `_metadata() -> string`, which returns the canonical text of the document."""
    builder = relax.BlockBuilder()
    with builder.function("constant", []):
        builder.emit_func_output(tvm.ir.StringImm(metadata_file.canonical(document)))
    function = builder.get()["constant"].with_attr("global_symbol", NAME)
    return tvm.IRModule({**dict(module.functions_items()), tvm.ir.GlobalVar(NAME): function}, attrs=module.attrs)


def attached_metadata(module: tvm.IRModule) -> str:
    """The text that the module's function `_metadata` returns."""
    return str(module[NAME].body.body.value)
