"""Norms of hidden states."""

from __future__ import annotations

from tvm.relax.frontend import nn

from mlcbuild.compiler.models.decoder import DecoderConfig


def rms_norm(config: DecoderConfig, *, dtype: str) -> nn.RMSNorm:
    """x / sqrt(mean(x²) + ε) · weight, over the hidden size."""
    return nn.RMSNorm(config.hidden_size, -1, config.norm_epsilon, bias=False, dtype=dtype)
