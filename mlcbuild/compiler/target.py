"""Targets: what a library runs on, as a JSON object in TVM's own form.

A CPU target names its processor (`mcpu`: a level such as x86-64-v3, or a CPU) and its triple (`mtriple`), so
that a library never depends on the machine that built it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import tvm
from tvm.target import codegen

from mlcbuild.errors import StageError

KINDS: tuple[str, ...] = ("llvm",)
_OF_THE_HOST = ("native", "host", "generic", "")


def parse(document: Mapping[str, object]) -> tvm.target.Target:
    """The target that a JSON object describes.

    Raises StageError for a kind that nothing here compiles for, a CPU target without a named processor and
    triple, a processor that LLVM does not know, and an option that the kind does not have.
    """
    kind = document.get("kind")
    if kind not in KINDS:
        raise StageError(f'unknown target kind "{kind}"', advice=(f"known: {', '.join(KINDS)}",))
    for name, example in (("mcpu", "x86-64-v3"), ("mtriple", "x86_64-linux-gnu")):
        value = document.get(name)
        if not isinstance(value, str) or value in _OF_THE_HOST:
            shown = "has no" if value is None else f"has {value!r} as"
            raise StageError(
                f"the target {shown} {name}",
                advice=(f'name what the library is for, for example "{name}": "{example}"',),
            )
    try:
        target = tvm.target.Target(dict(document))
    except (ValueError, TypeError) as error:
        raise StageError(f"not a target: {str(error).splitlines()[0]}") from error
    _check_processor(target, str(document["mcpu"]))
    return target


def host_triple(document: Mapping[str, object]) -> str:
    """The triple of the machine that loads the library."""
    return str(document["mtriple"])


def _check_processor(target: tvm.target.Target, processor: str) -> None:
    known = [str(name) for name in codegen.llvm_get_cpu_archlist(target)]
    if not known:
        raise StageError(f'LLVM has no code generator for the triple "{target.attrs["mtriple"]}"')
    if processor not in known:
        close = difflib.get_close_matches(processor, known, n=1)
        hint = f'; did you mean "{close[0]}"?' if close else ""
        levels = [name for name in known if name.startswith("x86-64")] or sorted(known)[:8]
        raise StageError(f'unknown processor "{processor}"', advice=(f"known: {', '.join(levels)}, …{hint}",))
