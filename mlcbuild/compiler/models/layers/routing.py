"""Which experts a token uses, and with which weights; and the order of a batch's rows by their experts.

An expert is chosen by its rank: how many experts are better. So ties are won by the lower number, on every backend, and
there is no sort. All numbers of routers are float32.
"""

from __future__ import annotations

from typing import NamedTuple

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import s_tir, te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.kernels.building import statement, store
from mlcbuild.compiler.models.architecture.mixture import ExpertGroups, MixtureConfig, RouterConfig, RouterScores
from mlcbuild.errors import InternalError

_LEAST = -3.0e38  # below every score; the scores of groups that are not chosen
_NOT_ZERO = 1e-20  # added to sums that are divided by


class Choice(NamedTuple):
    """A token's experts (tokens, experts_per_token) int32, the best first, and their weights, float32."""

    experts: nn.Tensor
    weights: nn.Tensor


class ExpertOrder(NamedTuple):
    """Choices, numbered token by token, in the order of their experts: the `experts` and the numbers in that order, and
    of each choice its place in that order. All are (tokens, experts_per_token) int32."""

    experts: nn.Tensor
    numbers: nn.Tensor
    places: nn.Tensor


def choose(logits: nn.Tensor, correction: nn.Tensor | None, config: MixtureConfig) -> Choice:
    """The experts of tokens by their `logits` (tokens, experts). `correction` (experts,) is added for choosing."""
    router, count = config.router, config.experts_per_token
    if router.scores is RouterScores.SPARSE_MIXER:
        ranks = _emit(rank_experts, "expert_ranks", logits)
        weights = _emit(lambda s, r: _sparse_mixer_weights(s, r, count, router.near), "expert_weights", logits, ranks)
        return Choice(_emit(lambda r: experts_of_ranks(r, count), "chosen_experts", ranks), weights)
    scores = nn.op.softmax(logits, axis=-1) if router.scores is RouterScores.SOFTMAX else nn.op.sigmoid(logits)
    by = scores if correction is None else scores + correction.astype("float32")
    if router.scores is RouterScores.SIGMOID and correction is None and router.groups is None:
        by = logits  # which are in the same order, and of which large ones differ more
    if router.groups is not None:
        by = _within_groups(by, router.groups)
    ranks = _emit(rank_experts, "expert_ranks", by)
    weights = _emit(lambda s, r: _of_rank(s, r, count), "expert_weights", scores, ranks)
    return Choice(_emit(lambda r: experts_of_ranks(r, count), "chosen_experts", ranks), _scaled(weights, router))


def ordered(chosen: nn.Tensor, config: MixtureConfig) -> ExpertOrder:
    """The choices (tokens, experts_per_token), those of one expert next to each other."""
    places = _emit(places_by_expert, "expert_places", chosen)
    shape = list(chosen.shape)
    experts, numbers = nn.op.tensor_ir_op(
        order_by_expert(config.experts_per_token),
        "expert_order",
        [chosen, places],
        [nn.Tensor.placeholder(shape, "int32"), nn.Tensor.placeholder(shape, "int32")],
    )
    return ExpertOrder(experts, numbers, places)


def _emit(function: object, name: str, *tensors: nn.Tensor) -> nn.Tensor:
    found = nn.op.tensor_expr_op(function, name, list(tensors))
    if not isinstance(found, nn.Tensor):
        raise InternalError(f"{name} makes more than one tensor")
    return found


def _scaled(weights: nn.Tensor, router: RouterConfig) -> nn.Tensor:
    if router.normalized:
        weights = weights / (nn.op.sum(weights, axis=-1, keepdims=True) + _NOT_ZERO)
    return weights if router.scale == 1.0 else weights * router.scale


def _is_better(score: te.Tensor, other: te.Tensor, earlier: tirx.Expr) -> tirx.Expr:
    """Whether `other` ranks before `score`; of equal ones, the earlier does."""
    return tirx.any(other > score, tirx.all(other == score, earlier))


def rank_experts(scores: te.Tensor) -> te.Tensor:
    """(n, columns) → of each, how many of its row are better, int32."""
    other = te.reduce_axis((0, scores.shape[1]), "other")

    def rank(row: tirx.Var, column: tirx.Var) -> tirx.Expr:
        better = _is_better(scores[row, column], scores[row, other], other < column)
        return te.sum(tirx.Select(better, tirx.const(1, "int32"), tirx.const(0, "int32")), axis=other)

    return te.compute(scores.shape, rank, name="ranks")


def experts_of_ranks(ranks: te.Tensor, count: int) -> te.Tensor:
    """(n, experts) → the experts of the ranks 0, 1, … (n, count). It is an expert's number whatever the scores are."""
    expert = te.reduce_axis((0, ranks.shape[1]), "expert")
    return te.compute(
        (ranks.shape[0], _size(count)),
        lambda row, rank: te.max(
            tirx.Select(ranks[row, expert] == rank.astype("int32"), expert.var.astype("int32"), tirx.const(0, "int32")),
            axis=expert,
        ),
        name="chosen",
    )


def _of_rank(scores: te.Tensor, ranks: te.Tensor, count: int) -> te.Tensor:
    """(n, experts) → the scores of the ranks 0, 1, … (n, count)."""
    expert = te.reduce_axis((0, ranks.shape[1]), "expert")
    return te.compute(
        (ranks.shape[0], _size(count)),
        lambda row, rank: te.sum(
            tirx.Select(ranks[row, expert] == rank.astype("int32"), scores[row, expert], tirx.const(0, scores.dtype)),
            axis=expert,
        ),
        name="weights",
    )


def _within_groups(scores: nn.Tensor, groups: ExpertGroups) -> nn.Tensor:
    """The scores, those of groups that are not chosen below all others."""
    size = int(scores.shape[1]) // groups.count

    def ranks_in_group(s: te.Tensor) -> te.Tensor:
        other = te.reduce_axis((0, size), "other")

        def rank(row: tirx.Var, expert: tirx.Var) -> tirx.Expr:
            first = tirx.floordiv(expert, size) * size
            better = _is_better(s[row, expert], s[row, first + other], first + other < expert)
            return te.sum(tirx.Select(better, tirx.const(1, "int32"), tirx.const(0, "int32")), axis=other)

        return te.compute(s.shape, rank, name="ranks_in_group")

    def group_scores(s: te.Tensor, ranks: te.Tensor) -> te.Tensor:
        member = te.reduce_axis((0, size), "member")
        zero = tirx.const(0, "float32")
        return te.compute(
            (s.shape[0], _size(groups.count)),
            lambda row, group: te.sum(
                tirx.Select(ranks[row, group * size + member] < groups.summed, s[row, group * size + member], zero),
                axis=member,
            ),
            name="group_scores",
        )

    def limited(s: te.Tensor, ranks: te.Tensor) -> te.Tensor:
        return te.compute(
            s.shape,
            lambda row, expert: tirx.Select(
                ranks[row, tirx.floordiv(expert, size)] < groups.chosen,
                s[row, expert],
                tirx.const(_LEAST, "float32"),
            ),
            name="limited",
        )

    inside = _emit(ranks_in_group, "ranks_in_group", scores)
    best = _emit(rank_experts, "group_ranks", _emit(group_scores, "group_scores", scores, inside))
    return _emit(limited, "within_groups", scores, best)


def _sparse_mixer_weights(logits: te.Tensor, ranks: te.Tensor, count: int, near: float) -> te.Tensor:
    """Of the expert of each rank, its part of the softmax over the experts that are not better, and whose logits are
    near to its own: (own - logit) / max(|logit|, own) is at most 2 `near`."""
    own = _of_rank(logits, ranks, count)
    expert = te.reduce_axis((0, ranks.shape[1]), "expert")

    def part(row: tirx.Var, rank: tirx.Var) -> tirx.Expr:
        logit, largest = logits[row, expert], own[row, rank]
        far = (largest - logit) / tirx.max(tirx.abs(logit), largest) > tirx.const(2 * near, "float32")
        better = ranks[row, expert] < rank.astype("int32")
        return te.sum(
            tirx.Select(tirx.any(better, far), tirx.const(0, "float32"), tirx.exp(logit - largest)), axis=expert
        )

    sums = te.compute((ranks.shape[0], _size(count)), part, name="sums")
    return te.compute(sums.shape, lambda row, rank: tirx.const(1, "float32") / sums[row, rank], name="weights")


def places_by_expert(chosen: te.Tensor) -> te.Tensor:
    """The place of each choice among all, ordered by expert, then as they are."""
    tokens, choices = chosen.shape
    token, choice = te.reduce_axis((0, tokens), "token"), te.reduce_axis((0, choices), "choice")

    def place(row: tirx.Var, column: tirx.Var) -> tirx.Expr:
        other, own = chosen[token, choice], chosen[row, column]
        earlier = tirx.any(token < row, tirx.all(token == row, choice < column))
        before = tirx.any(other < own, tirx.all(other == own, earlier))
        return te.sum(tirx.Select(before, tirx.const(1, "int32"), tirx.const(0, "int32")), axis=[token, choice])

    return te.compute(chosen.shape, place, name="places")


def order_by_expert(choices: int) -> tirx.PrimFunc:
    """The kernel from choices and their places to experts and numbers in that order. Each place is written once."""
    tokens = tirx.Var("tokens", "int64")
    shape = (tokens, _size(choices))
    chosen, places, experts, numbers = (
        tirx.decl_buffer(shape, "int32", name=name) for name in ("chosen", "places", "experts", "numbers")
    )

    def body() -> None:
        with T.serial(0, tokens) as i, T.serial(0, _size(choices)) as j, T.sblock("order"):
            token, choice = T.axis.spatial(tokens, i), T.axis.spatial(_size(choices), j)
            T.reads(chosen[token, choice], places[token, choice])
            T.writes(*(buffer[0:tokens, 0:choices] for buffer in (experts, numbers)))
            place = places[token, choice].astype("int64")
            to = tirx.floordiv(place, choices), tirx.floormod(place, choices)
            store(experts, chosen[token, choice], *to)
            store(numbers, (token * choices + choice).astype("int32"), *to)

    block = s_tir.SBlock(iter_vars=[], reads=[], writes=[], name_hint="root", body=statement(body))
    made = tirx.PrimFunc([chosen, places, experts, numbers], s_tir.SBlockRealize([], True, block))
    return made.with_attrs({"tirx.noalias": True, "s_tir": True})


def _size(size: int) -> tirx.IntImm:
    """Relax counts in int64; a plain int would become an int32."""
    return tirx.IntImm("int64", size)
