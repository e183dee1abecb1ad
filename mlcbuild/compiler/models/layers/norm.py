"""Norms on TVM's `relax.frontend.nn`."""

from __future__ import annotations

from tvm import relax
from tvm.relax.frontend import nn

from mlcbuild.compiler.models.architecture.decoder import NormConfig, NormKind, NormScope, QueryKeyNorm


class LayerNorm(nn.Module):  # type: ignore[misc]
    """(x - mean(x)) / √(variance(x) + ε) · weight + bias over the last axis; without weight or bias, as if they were
    ones or zeros."""

    def __init__(self, config: NormConfig, size: int, *, dtype: str) -> None:
        self.epsilon = config.epsilon
        self.size = size
        self.weight = nn.Parameter((size,), dtype) if config.weight else None
        self.bias = nn.Parameter((size,), dtype) if config.bias else None

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        if x.dtype != "bfloat16":
            return nn.op.layer_norm(x, self.size, self.weight, self.bias, self.epsilon)
        # TVM's norm knows no bfloat16. Like that of float16, it computes in float32.
        weight, bias = (None if each is None else each.astype("float32") for each in (self.weight, self.bias))
        return nn.op.layer_norm(x.astype("float32"), self.size, weight, bias, self.epsilon).astype(x.dtype)


class PlainRMSNorm(nn.Module):  # type: ignore[misc]
    """x / √(mean(x²) + ε) over the last axis."""

    def __init__(self, config: NormConfig, size: int, *, dtype: str) -> None:
        self.epsilon = config.epsilon
        self.ones = [1.0] * size
        self.dtype = dtype

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.rms_norm(x, nn.Tensor(_expr=relax.const(self.ones, self.dtype)), [-1], self.epsilon)


class EachHeadNorm(nn.Module):  # type: ignore[misc]
    """A norm of each head (…, heads, head_dim), followed by weights (heads, head_dim)."""

    def __init__(self, config: NormConfig, heads: int, head_dim: int, *, dtype: str) -> None:
        plain = NormConfig(epsilon=config.epsilon, kind=config.kind, weight=False)
        self.weight = nn.Parameter((heads, head_dim), dtype)
        self.norm = make_norm(plain, head_dim, dtype=dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.norm(x) * self.weight


def make_norm(config: NormConfig, size: int, *, dtype: str) -> nn.Module:
    """A norm over the last axis, which has `size` elements."""
    if config.kind is NormKind.LAYER:
        return LayerNorm(config, size, dtype=dtype)
    if not config.weight:
        return PlainRMSNorm(config, size, dtype=dtype)
    return nn.RMSNorm(size, -1, config.epsilon, bias=False, dtype=dtype)


def make_head_norm(config: QueryKeyNorm, heads: int, head_dim: int, *, dtype: str) -> nn.Module:
    """A norm of queries or keys (…, heads, head_dim); for all heads together, of (…, heads · head_dim)."""
    if config.scope is NormScope.EACH_HEAD:
        return EachHeadNorm(config.norm, heads, head_dim, dtype=dtype)
    return make_norm(config.norm, head_dim if config.scope is NormScope.HEAD else heads * head_dim, dtype=dtype)
