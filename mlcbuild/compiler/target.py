"""Targets: what a library runs on, as a JSON object in TVM's own form.

Every target names the processor (`mcpu`: a level such as x86-64-v3, or a CPU) and the triple (`mtriple`) of its host,
so that a library never depends on the machine that built it. A CPU target is that host; a CUDA target has it as
`host`, and names the architecture and the limits of the device, which TVM would otherwise ask of a GPU of this
machine.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm.target import codegen

from mlcbuild.compiler.backends.cuda import architectures
from mlcbuild.compiler.target_host import host_of
from mlcbuild.errors import StageError
from mlcbuild.suggestions import known_values

KINDS: tuple[str, ...] = ("cuda", "llvm")
_OF_THE_HOST = ("native", "host", "generic", "")
_DEVICE_LIMITS = ("max_threads_per_block", "max_shared_memory_per_block", "thread_warp_size")


def parse(document: Mapping[str, object]) -> tvm.target.Target:
    """The target that a JSON object describes.

    Raises StageError for a kind that nothing here compiles for, a host without a named processor and triple, a
    processor that LLVM does not know, a device without a known architecture and limits, and an option that the kind
    does not have.
    """
    kind = document.get("kind")
    if kind not in KINDS:
        raise StageError(f'unknown target kind "{kind}"', advice=(f"known: {', '.join(KINDS)}",))
    host = host_of(document)
    whose = "host" if kind == "cuda" else "target"
    for name, example in (("mcpu", "x86-64-v3"), ("mtriple", "x86_64-linux-gnu")):
        value = host.get(name)
        if not isinstance(value, str) or value in _OF_THE_HOST:
            shown = "has no" if value is None else f"has {value!r} as"
            raise StageError(
                f"the {whose} {shown} {name}",
                advice=(f'name what the library is for, for example "{name}": "{example}"',),
            )
    if kind == "cuda":
        _check_device(document)
    try:
        target = tvm.target.Target(dict(document))
    except (ValueError, TypeError) as error:
        raise StageError(f"not a target: {str(error).splitlines()[0]}") from error
    _check_processor(target if target.host is None else target.host, str(host["mcpu"]))
    return target


def parse_kind(document: Mapping[str, object], kind: str) -> tvm.target.Target:
    """`parse`, for who can do with one kind of target alone. Raises StageError for others too."""
    target = parse(document)
    if target.kind.name != kind:
        raise StageError(f'a target of kind "{target.kind.name}", where "{kind}" is needed')
    return target


def _check_device(document: Mapping[str, object]) -> None:
    name = document.get("arch")
    if not isinstance(name, str):
        raise StageError("the CUDA target has no arch", advice=('name what the library is for: "arch": "sm_90"',))
    if (wrong := architectures.problem(name)) is not None:
        raise StageError(wrong[0], advice=wrong[1])
    for limit in _DEVICE_LIMITS:
        value = document.get(limit)
        if not isinstance(value, int) or value <= 0:
            shown = "has no" if value is None else f"has {value!r} as"
            raise StageError(f"the CUDA target {shown} {limit}", advice=("give a number above 0",))


def _check_processor(target: tvm.target.Target, processor: str) -> None:
    known = [str(name) for name in codegen.llvm_get_cpu_archlist(target)]
    if not known:
        raise StageError(f'LLVM has no code generator for the triple "{target.attrs["mtriple"]}"')
    if processor not in known:
        levels = sorted(name for name in known if name.startswith("x86-64"))
        names = (*levels, *sorted(known))
        raise StageError(f'unknown processor "{processor}"', advice=(known_values(processor, names),))
