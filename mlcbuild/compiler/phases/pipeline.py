"""How a phase runs: its entries in order, each by the implementation that the backend or everybody has for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tvm

from mlcbuild.compiler.phases.added import AddedPass
from mlcbuild.compiler.phases.entry import Entry
from mlcbuild.errors import InternalError
from mlcbuild.suggestions import known_values

if TYPE_CHECKING:  # Known to Lower alone: the other phases do not run again when these change.
    from mlcbuild.compiler.models.description import Layers
    from mlcbuild.compiler.models.sizes import LibrarySizes
    from mlcbuild.compiler.signature import Signature


@dataclass(frozen=True, kw_only=True)
class PhaseContext:
    """What a pass may depend on besides the module.

    Phase0 and Lower know `metadata`, what a library says of itself so far. Lower alone knows the fields below it:
    `parameters` are the names of all weights in the order that entry functions take them, `signatures` those of the
    graph's kernels by name.
    """

    target: tvm.target.Target
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sizes: LibrarySizes | None = None
    layers: Layers | None = None
    parameters: tuple[str, ...] = ()
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    cuda_graph: bool = False  # decoding steps are recorded once and replayed


Run = Callable[[tvm.IRModule, PhaseContext], tvm.IRModule]
Passes = Mapping[str, Run]  # by the names of entries


def module_pass(run: Callable[[tvm.IRModule], tvm.IRModule]) -> Run:
    """A pass that needs the module alone."""
    return lambda module, _context: run(module)


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
    added: Sequence[AddedPass] = (),
) -> tvm.IRModule:
    """The module after the passes of the entries, in order.

    `common` are the implementations that serve every backend; those of `backend` run in their place. `added` are a
    workspace's passes, which run beside entries. Raises InternalError for implementations that do not fit the entries,
    and StageError for an added pass that goes wrong.
    """
    chosen = _implementations(entries, common, backend or {})
    runs: list[Run] = []
    for entry in entries:
        runs += [one.run for one in added if one.place == entry.name and one.before]
        if entry.name in chosen:
            runs.append(chosen[entry.name])
        runs += [one.run for one in added if one.place == entry.name and not one.before]
    config = {"relax.backend.use_cuda_graph": True} if context.cuda_graph else {}
    with context.target, tvm.transform.PassContext(opt_level=3, config=config):
        for run in runs:
            module = run(module, context)
    return module


def _implementations(entries: tuple[Entry, ...], common: Passes, backend: Passes) -> dict[str, Run]:
    known = {entry.name: entry for entry in entries}
    for whose, passes in (("the common passes", common), ("the backend's passes", backend)):
        for name in passes:
            if name not in known:
                raise InternalError(
                    f'{whose} implement "{name}", which is no entry of this phase',
                    advice=(known_values(name, known),),
                )
            if known[name].not_needed:
                raise InternalError(f'{whose} implement "{name}", which its entry says is not needed')
    for name in backend:
        if not known[name].backend:
            raise InternalError(f'the backend\'s passes implement "{name}", which is not for backends to implement')
    for entry in entries:
        if not entry.not_needed and not entry.backend and entry.name not in common:
            raise InternalError(f'nothing implements "{entry.name}", and its entry does not say that it is not needed')
    return {**common, **backend}
