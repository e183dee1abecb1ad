"""Phase2: operators become kernels, and neighbours fuse."""

from __future__ import annotations

from mlcbuild.compiler.phases.entry import Entry, Origin

PHASE2: tuple[Entry, ...] = (
    Entry(name="DispatchSampling", origin=Origin.MLC_LLM),
    Entry(name="DispatchSortScan", origin=Origin.MLC_LLM),
    Entry(name="LegalizeOps", origin=Origin.MLC_LLM),
    Entry(name="AnnotateTIROpPattern", origin=Origin.MLC_LLM),
    Entry(name="FoldConstant", origin=Origin.MLC_LLM),
    Entry(name="FuseOps", origin=Origin.MLC_LLM),
    Entry(name="FuseTIR", origin=Origin.MLC_LLM),
)
