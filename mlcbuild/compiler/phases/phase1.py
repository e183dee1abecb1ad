"""Phase1: operators of the graph become fewer."""

from __future__ import annotations

from mlcbuild.compiler.phases.entry import Entry, PassOrigin

PHASE1: tuple[Entry, ...] = (
    Entry(name="DispatchTritonKernel", origin=PassOrigin.MLC_LLM, backend=True),
    Entry(
        name="FuseFTDequantizeEpilogue",
        origin=PassOrigin.MLC_LLM,
        not_needed="It fuses what follows a product of FasterTransformer's into that call. No scheme here makes one.",
    ),
    Entry(
        name="FuseDequantizeTranspose",
        origin=PassOrigin.MLC_LLM,
        not_needed="FuseTransposeMatmul leaves no transposed matrix: a product reads it by rows, as it is stored.",
    ),
    Entry(
        name="BLASDispatch",
        origin=PassOrigin.MLC_LLM,
        not_needed="It calls cuBLAS or hipBLAS, and TVM's distribution is built without either.",
    ),
    Entry(name="FuseAddRMSNorm", origin=PassOrigin.MLC_LLM, backend=True),
    Entry(name="FuseTransposeMatmul", origin=PassOrigin.MLC_LLM),
)
