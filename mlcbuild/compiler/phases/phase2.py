"""Phase2: operators become kernels, and neighbours fuse."""

from __future__ import annotations

from mlcbuild.compiler.phases.entry import Entry, PassOrigin

PHASE2: tuple[Entry, ...] = (
    Entry(name="DispatchSampling", origin=PassOrigin.MLC_LLM),
    Entry(name="DispatchSortScan", origin=PassOrigin.MLC_LLM),
    Entry(name="LegalizeOps", origin=PassOrigin.MLC_LLM),
    Entry(name="AnnotateTIROpPattern", origin=PassOrigin.MLC_LLM),
    Entry(name="FoldConstant", origin=PassOrigin.MLC_LLM),
    Entry(name="FuseOps", origin=PassOrigin.MLC_LLM),
    Entry(name="FuseTIR", origin=PassOrigin.MLC_LLM),
)
