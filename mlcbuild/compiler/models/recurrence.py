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


Recurrence = StateSpaceConfig
