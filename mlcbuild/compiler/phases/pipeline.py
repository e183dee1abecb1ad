"""How a phase runs: its entries in order, each by the implementation that the backend or everybody has for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import tvm

from mlcbuild.compiler.phases.entry import Entry
from mlcbuild.compiler.phases.placed import PlacedPass
from mlcbuild.errors import StageError
from mlcbuild.suggestions import known_values

if TYPE_CHECKING:  # Known to Phase0 or Lower alone: the other phases do not run again when these change.
    from mlcbuild.compiler.models.architecture.window import SlidingWindow
    from mlcbuild.compiler.models.description import Layers
    from mlcbuild.compiler.models.sizes import LibrarySizes
    from mlcbuild.compiler.signature import Signature


@dataclass(frozen=True, kw_only=True)
class PhaseContext:
    """What a pass may depend on besides the module.

    Phase0 and Lower know `metadata`, what a library says of itself so far. Phase0 alone knows the `window` of
    attention, None where it sees all of the text. Phase1 alone knows the `triton_kernels` that a workspace declares
    (`rules.triton_kernel`). Lower alone knows the fields below that: `parameters` are the names
    of all weights in the order that entry functions take them, `signatures` those of the graph's kernels by name.
    """

    target: tvm.target.Target
    metadata: Mapping[str, Any] = field(default_factory=dict)
    window: SlidingWindow | None = None
    triton_kernels: Sequence[Mapping[str, Any]] = ()
    sizes: LibrarySizes | None = None
    layers: Layers | None = None
    parameters: tuple[str, ...] = ()
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    cuda_graph: bool = False  # decoding steps are recorded once and replayed


Run = Callable[[tvm.IRModule, PhaseContext], tvm.IRModule]


Observer = Callable[[str, tvm.IRModule], None]
_observer: ContextVar[Observer | None] = ContextVar("observer of passes", default=None)

# By the names of entries; those of a backend may be placed passes too, by names of their own.
Passes = Mapping[str, Run | PlacedPass]


def module_pass(run: Callable[[tvm.IRModule], tvm.IRModule]) -> Run:
    """A pass that needs the module alone."""
    return lambda module, _context: run(module)


def of_logits(run: Run) -> Run:
    """A pass that adds functions of logits: a model of embeddings has none."""
    return lambda module, context: run(module, context) if context.metadata.get("model_task") != "embedding" else module


def tvm_pass(make: Callable[[], Any]) -> Run:
    """A pass of TVM's own that takes no arguments."""

    def run(module: tvm.IRModule, _context: PhaseContext) -> tvm.IRModule:
        return make()(module)

    return run


def apply(
    module: tvm.IRModule,
    entries: tuple[Entry, ...],
    context: PhaseContext,
    *,
    common: Passes,
    backend: Passes | None = None,
    added: Sequence[PlacedPass] = (),
) -> tvm.IRModule:
    """The module after the passes of the entries, in order.

    `common` are the implementations that serve every backend; those of `backend` run in their place, and its placed
    passes beside entries. `added` are a workspace's passes, which run around both. Raises StageError for
    implementations that do not fit the entries, and for a placed pass that goes wrong.
    """
    chosen = _implementations(entries, common, backend or {})
    placed = [replace(one, name=name) for name, one in (backend or {}).items() if isinstance(one, PlacedPass)]
    runs: list[tuple[str, Run]] = []
    for entry in entries:
        runs += [(one.name, one) for one in (*added, *placed) if one.before == entry.name]
        if entry.name in chosen:
            runs.append((entry.name, chosen[entry.name]))
        runs += [(one.name, one) for one in (*placed, *added) if one.after == entry.name]
    config = {"relax.backend.use_cuda_graph": True} if context.cuda_graph else {}
    observer = _observer.get()
    with context.target, tvm.transform.PassContext(opt_level=3, config=config):
        if observer is not None:
            observer("", module)
        for name, run in runs:
            module = run(module, context)
            if observer is not None:
                observer(name, module)
    return module


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Within the block every phase calls `observer` with "" and its module, then with each pass's name and module."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def _implementations(entries: tuple[Entry, ...], common: Passes, backend: Passes) -> dict[str, Run]:
    known = {entry.name: entry for entry in entries}
    for entry in entries:
        if not entry.not_needed and not entry.backend and entry.name not in common:
            raise StageError(f'nothing implements "{entry.name}", and its entry does not say that it is not needed')
    chosen = {}
    for whose, passes in (("common passes", common), ("passes of the backend", backend)):
        for name, run in passes.items():
            if isinstance(run, PlacedPass):
                _check_place(name, run, known)
                continue
            if name not in known:
                raise StageError(
                    f'the {whose} implement "{name}", which is no pass of this phase', advice=_known(known)
                )
            if known[name].not_needed:
                raise StageError(f'the {whose} implement "{name}", which its entry says is not needed')
            if passes is backend and not known[name].backend:
                raise StageError(
                    f'the {whose} implement "{name}", which is the same for all backends', advice=_known(known)
                )
            chosen[name] = run
    return chosen


def _check_place(name: str, placed: PlacedPass, known: Mapping[str, Entry]) -> None:
    if name in known:
        raise StageError(f'the pass "{name}" is placed, and there is a pass of that name', advice=("rename it",))
    if bool(placed.after) == bool(placed.before):
        raise StageError(f'the pass "{name}" is placed neither after nor before one pass', advice=("name one",))
    if (place := placed.after or placed.before) not in known:
        advice = (known_values(place, known),)
        raise StageError(f'the pass "{name}" is placed beside "{place}", which is no pass of this phase', advice=advice)


def _known(known: Mapping[str, Entry]) -> tuple[str, ...]:
    """What a backend may do instead."""
    own = ", ".join(entry.name for entry in known.values() if entry.backend)
    return (
        f"a backend implements: {own}" if own else "a backend implements no pass of this phase",
        "a pass of another name is a PlacedPass, which says after or before which pass it runs",
    )
