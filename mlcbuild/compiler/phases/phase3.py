"""Phase3: kernels are fused further."""

from __future__ import annotations

from mlcbuild.compiler.phases.entry import Entry, PassOrigin

PHASE3: tuple[Entry, ...] = (
    Entry(name="FuseDequantizeMatmulEwise", origin=PassOrigin.MLC_LLM),
    Entry(
        name="FuseDequantizeTake",
        origin=PassOrigin.MLC_LLM,
        not_needed="FuseDequantizeMatmulEwise fuses into both kinds of readers, products and row lookups, in one go.",
    ),
    Entry(name="DeadCodeElimination", origin=PassOrigin.MLC_LLM),
    # MLC-LLM has it in Phase5. It reads the bodies of kernels, which the graph no longer has once it is partitioned.
    Entry(name="RewriteDataflowReshape", origin=PassOrigin.MLC_LLM),
    Entry(name="CleanUpTIRAttrs", origin=PassOrigin.MLC_LLM),
)
