"""A mixture of experts as values: a layer's feed-forward of which each token uses a few experts.

A router gives every expert a score; a token's chosen experts each compute a gated feed-forward, and their results are
added, each times its weight. The parts are beside this module: `experts` (the module), `routing` (who is chosen), and
`mixture_parameters`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.compiler.models.architecture.activation import Activation
from mlcbuild.compiler.models.config import ConfigReader


class RouterScores(enum.Enum):
    """What an expert's score is of the router's logits."""

    SOFTMAX = "softmax"  # over all experts
    SIGMOID = "sigmoid"
    SPARSE_MIXER = "sparsemixer"  # of two experts, each a softmax over those whose logits are near (arXiv 2409.12136)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertGroups:
    """Only experts of the `chosen` best of `count` equal groups can be chosen. A group is as good as the sum of the
    scores of its `summed` best experts."""

    count: int
    chosen: int
    summed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """How experts are chosen, and their weights: their scores, divided by their sum if `normalized`, times `scale`.

    Of a softmax, the normalized weights are the softmax over the chosen experts' logits alone. `bias` is added to
    logits. `correction_bias` is added to scores for choosing, and not to weights. `near` is how far, relatively, a
    logit may be from the largest in a sparse mixer. Ties are won by the expert with the lower number.
    """

    scores: RouterScores = RouterScores.SOFTMAX
    normalized: bool = False
    scale: float = 1.0
    bias: bool = False
    correction_bias: bool = False
    groups: ExpertGroups | None = None
    near: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedExperts:
    """Experts that every token uses: one feed-forward by way of `intermediate_size` elements. If `gated`, its result
    is multiplied by the sigmoid of one number, a linear function of the input."""

    intermediate_size: int
    gated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClampedGate:
    """g σ(`alpha` g) · (u + 1), where g is gate(x), at most `limit`, and u is up(x), from -`limit` to `limit`."""

    alpha: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureNames:
    """Modules by the path that MLC-LLM gives them below a layer; `correction_bias` is a parameter."""

    router: str = "mlp.gate"
    correction_bias: str = "mlp.e_score_correction_bias"
    gate_up: str = "mlp.moe_gate_up_proj"
    down: str = "mlp.moe_down_proj"
    shared: str = "mlp.shared_expert"
    shared_gate: str = "mlp.shared_expert_gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureConfig:
    """The sum over a token's `experts_per_token` experts of weight · down(activation(gate(x)) · up(x)), by way of
    `intermediate_size` elements, plus what `shared` experts make of x.

    If `weighs_input`, experts are given x times the weight instead. With `bias`, the products have one. A `clamped`
    gate is in place of activation(gate(x)) · up(x).
    """

    KIND: ClassVar[str] = "mixture"
    experts: int
    experts_per_token: int
    intermediate_size: int
    router: RouterConfig
    activation: Activation = Activation.SILU
    shared: SharedExperts | None = None
    weighs_input: bool = False
    bias: bool = False
    clamped: ClampedGate | None = None
    names: MixtureNames = MixtureNames()

    def __post_init__(self) -> None:
        if not 0 < self.experts_per_token <= self.experts:
            raise ValueError(f"{self.experts_per_token} of {self.experts} experts cannot be chosen")
        groups = self.router.groups
        if groups is not None and (self.experts % groups.count or not 0 < groups.chosen <= groups.count):
            raise ValueError(f"{self.experts} experts, {groups.chosen} of {groups.count} groups of which can be chosen")


def read_experts(reader: ConfigReader, *fields: str) -> tuple[int, int]:
    """How many experts there are, and how many a token uses, by `num_experts_per_tok`.

    `fields` have the number of experts; left out, `num_experts` and `num_local_experts`, which are one to transformers.
    Raises StageError naming a field that is missing, out of range or not the same as the other.
    """
    names = fields or ("num_experts", "num_local_experts")
    there = [name for name in names if reader.document.get(name) is not None]
    there = there or [name for name in names if reader.has(name)] or [names[0]]
    counts = [reader.integer(name, low=1, high=1 << 12) for name in there]
    if len(set(counts)) > 1:
        raise reader.fail(there[0], f'is {counts[0]}, and "{there[1]}", which means the same, is {counts[1]}')
    return counts[0], reader.integer("num_experts_per_tok", low=1, high=min(counts[0], 64))
