"""What a phase is made of: passes in order, each with its place in MLC-LLM's pipeline.

Every pass of that pipeline is named in one of the modules beside this one, one a phase, so that a new target or model
adds a pass where it belongs, and a stage depends on the code of its own phase alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm


@dataclass(frozen=True, kw_only=True)
class PhaseContext:
    """What a pass may depend on besides the module. Vocabularies are known to Phase0 alone."""

    target: tvm.target.Target
    vocab_size: int = 0
    active_vocab_size: int = 0
    cuda_graph: bool = False  # decoding steps are recorded once and replayed

    @property
    def on_gpu(self) -> bool:
        return bool(self.target.kind.name == "cuda")


Run = Callable[[tvm.IRModule, PhaseContext], tvm.IRModule]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One pass of the pipeline, by MLC-LLM's or TVM's name.

    `run` is None for a pass that nothing supported needs yet, or that another stage runs: then `where` names the stage.
    """

    name: str
    run: Run | None = None
    where: str = ""


def own(run: Callable[[tvm.IRModule], tvm.IRModule]) -> Run:
    """A pass that needs the module alone."""
    return lambda module, _context: run(module)


def of_tvm(make: Callable[[], Any]) -> Run:
    """A pass of TVM's own that takes no arguments."""

    def run(module: tvm.IRModule, _context: PhaseContext) -> tvm.IRModule:
        return make()(module)

    return run


def on_gpu(run: Run) -> Run:
    """A pass that leaves modules for other targets as they are."""

    def conditional(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
        return run(module, context) if context.on_gpu else module

    return conditional


def apply(module: tvm.IRModule, entries: tuple[Entry, ...], context: PhaseContext) -> tvm.IRModule:
    """The module after the entries' passes, in order."""
    config = {"relax.backend.use_cuda_graph": True} if context.on_gpu and context.cuda_graph else {}
    with context.target, tvm.transform.PassContext(opt_level=3, config=config):
        for entry in entries:
            if entry.run is not None:
                module = entry.run(module, context)
    return module
