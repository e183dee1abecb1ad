"""Targets: what a library runs on, as a JSON object in TVM's own form.

Every target names the processor (`mcpu`: a level such as x86-64-v3, or a CPU) and the triple (`mtriple`) of its host,
so that a library never depends on the machine that built it. A CPU target is its own host; a device has one as `host`,
and names of itself all that TVM would otherwise ask of a device of this machine: `rules/backends` see to that.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm.target import codegen

from mlcbuild.compiler.target_host import host_of
from mlcbuild.errors import StageError
from mlcbuild.suggestions import known_values

_OF_THIS_MACHINE = ("native", "host", "generic", "")


def parse(document: Mapping[str, object]) -> tvm.target.Target:
    """The target that a JSON object describes.

    Raises StageError for a kind that TVM does not know, a host without a named processor and triple, a processor that
    LLVM does not know, and an option that the kind does not have.
    """
    host = host_of(document)
    whose = "target" if host is document else "host"
    for name, example in (("mcpu", "x86-64-v3"), ("mtriple", "x86_64-linux-gnu")):
        value = host.get(name)
        if not isinstance(value, str) or value in _OF_THIS_MACHINE:
            shown = "has no" if value is None else f"has {value!r} as"
            raise StageError(
                f"the {whose} {shown} {name}",
                advice=(f'name what the library is for, for example "{name}": "{example}"',),
            )
    try:
        target = tvm.target.Target(dict(document))
    except (ValueError, TypeError) as error:
        raise StageError(f"not a target: {str(error).splitlines()[0]}") from error
    _check_processor(target if target.host is None else target.host, str(host["mcpu"]))
    return target


def _check_processor(target: tvm.target.Target, processor: str) -> None:
    known = [str(name) for name in codegen.llvm_get_cpu_archlist(target)]
    if not known:
        raise StageError(f'LLVM has no code generator for the triple "{target.attrs["mtriple"]}"')
    if processor not in known:
        levels = sorted(name for name in known if name.startswith("x86-64"))
        names = (*levels, *sorted(known))
        raise StageError(f'unknown processor "{processor}"', advice=(known_values(processor, names),))
