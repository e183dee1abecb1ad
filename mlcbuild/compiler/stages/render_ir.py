"""Renders what other stages write, for people: `mlcbuild show --ir` calls these stages, no build does.

`module` reads `source`, IR in TVM's JSON form, and writes `text`, the same as TVMScript. `executable` reads `source`,
an executable of TVM's virtual machine, and writes `text`, its bytecode.
"""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import relax

from mlcbuild.compiler import ir
from mlcbuild.errors import StageError


def module(*, source: Path, text: Path) -> None:
    """Raises StageError for a file that holds no IR module."""
    text.write_text(module_text(ir.load_module(source)), encoding="utf-8")


def module_text(module: tvm.IRModule) -> str:
    """A module as TVMScript."""
    return str(module.script()).rstrip() + "\n"


def executable(*, source: Path, text: Path) -> None:
    """Raises StageError for a file that holds no executable."""
    try:
        loaded = tvm.get_global_func("relax.ExecutableLoadFromFile")(str(source))
    except Exception as error:
        raise StageError(f"{source.name} is not an executable of TVM's virtual machine") from error
    text.write_text(relax.VMExecutable(loaded).as_text().rstrip() + "\n", encoding="utf-8")
