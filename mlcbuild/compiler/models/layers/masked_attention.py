"""Attention of texts that are padded to one length: each token sees all of its text, whatever its place.

The module calls `mlcbuild.masked_attention`, which Phase0 replaces by a backend's kernel.
"""

from __future__ import annotations

from tvm import relax
from tvm.relax.frontend import nn

PLACEHOLDER = "mlcbuild.masked_attention"


def masked_attention(qkv: nn.Tensor, mask: nn.Tensor, *, heads: int) -> nn.Tensor:
    """Softmax(Q Kᵀ / √d) V within each text, over the tokens whose `mask` (texts, length) int32 is not 0.

    `qkv` (1, texts · length, 3 · heads · d) has the queries, keys and values of all texts, one after another, and the
    result is (1, texts · length, heads · d). Tokens that are masked get results as well, of the same keys; in a text of
    which every token is masked they are 0.
    """
    one, tokens, width = qkv.shape
    head_dim = int(width) // (3 * heads)
    given = nn.op.reshape(qkv, (tokens, 3 * heads, head_dim))
    attended = relax.BlockBuilder.current().emit(
        relax.call_dps_packed(
            PLACEHOLDER,
            [given._expr, mask._expr],
            out_ty=relax.TensorType((tokens, heads, head_dim), qkv.dtype),
        )
    )
    return nn.op.reshape(nn.Tensor(_expr=attended), (one, tokens, heads * head_dim))
