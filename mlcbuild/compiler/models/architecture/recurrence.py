"""Layers that keep a state of fixed size for a sequence, as values: a short convolution along the text, and a
recurrence (`kernels.state_scan`).

A sequence's state is what the convolution sees of the last tokens, and the matrices of the recurrence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpaceConfig:
    """Mamba 2's layer, of `heads` with states (head_dim, state_size). A step is softplus(dt + bias), kept within
    `least_step` and `most_step`, where None is no bound."""

    KIND: ClassVar[str] = "state space"
    heads: int
    head_dim: int
    groups: int  # of heads that share keys and queries
    state_size: int
    convolution: int  # how many tokens it sees, the present one among them
    convolution_bias: bool
    bias: bool
    norm_epsilon: float
    least_step: float = 0.0
    most_step: float | None = None

    @property
    def inner(self) -> int:
        """The size of what the heads make together."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """What goes through the convolution: values, keys and queries."""
        return self.inner + 2 * self.groups * self.state_size

    @property
    def state_sizes(self) -> tuple[int, int]:
        """Numbers of a sequence's state: the convolution's, and the recurrence's."""
        return (self.convolution - 1) * self.channels, self.inner * self.state_size


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaRuleConfig:
    """A layer of the gated delta rule: as many `heads` with states (value_dim, key_dim), of which `key_heads` groups
    share keys and queries.

    The products for queries, keys, values and gates are one matrix, and those for steps and decays are one, if they are
    `fused`.
    """

    KIND: ClassVar[str] = "delta rule"
    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    convolution: int  # how many tokens it sees, the present one among them
    norm_epsilon: float
    fused: bool = False

    @property
    def inner(self) -> int:
        """The size of what the heads make together."""
        return self.heads * self.value_dim

    @property
    def keys(self) -> int:
        """The size of all keys, and of all queries."""
        return self.key_heads * self.key_dim

    @property
    def channels(self) -> int:
        """What goes through the convolution: queries, keys and values."""
        return 2 * self.keys + self.inner

    @property
    def state_sizes(self) -> tuple[int, int]:
        """Numbers of a sequence's state: the convolution's, and the recurrence's."""
        return (self.convolution - 1) * self.channels, self.inner * self.key_dim


Recurrence = StateSpaceConfig | DeltaRuleConfig
