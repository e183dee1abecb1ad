"""Inputs of matrices whose columns can be scaled without a change in what a model computes.

An input x of matrices W, W', … is divided by a vector s of positive scales where it is made, and the matrices' columns
are multiplied by it: (x / s) (W s)ᵀ = x Wᵀ. What makes x, a norm's weight for example, absorbs the division. The lists
here say of a model where that is so, by MLC-LLM's names of parameters, so that no stage has to know a family
(`smoothed_inputs` has them of a decoder).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Absorber:
    """Elements of a vector, or rows of a matrix, from `begin` on, one a channel, that are divided by the channel's
    scale. Of experts, each one's."""

    parameter: str
    begin: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothedInput:
    """An input that all of `matrices` read, and nothing else does.

    It has `channels` with a scale each. The channels are in runs of `width`, and the matrices have each run's columns
    `repeats` times, one after another: heads of queries that share a head of values. The division goes through a
    function of `degree` d, for which f(x / s) = f(x) / s^d: absorbers are divided by the d-th root of the scale.
    """

    matrices: tuple[str, ...]
    absorbed_by: tuple[Absorber, ...]
    channels: int
    width: int = 1
    repeats: int = 1
    degree: int = 1

    def __post_init__(self) -> None:
        if not self.matrices or not self.absorbed_by or self.channels % self.width or self.degree not in (1, 2):
            raise ValueError(f"no input that can be scaled: {self}")

    @property
    def columns(self) -> int:
        """Columns of each matrix."""
        return self.channels * self.repeats
