"""TVM's attention kernels for GPUs, changed so that they compute the rules of a model (`architecture.attention_rules`).

Scores of no key are added by a kernel behind TVM's: it knows the denominator of the softmax by its logarithm. Of the
ranges of keys whose results are merged, the one with the text's first key has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.launching import register
from mlcbuild.compiler.backends.cuda.kernels.tvm_attention import (
    add_in_decode,
    add_in_prefill,
    followed_by,
    hide_in_decode,
    hide_in_prefill,
    with_scale,
    with_scores,
)
from mlcbuild.compiler.kernels.building import Buffer, Expression, converted, statement, store
from mlcbuild.compiler.kernels.layer_rules import factor, oldest_seen, sees_less, slope
from mlcbuild.compiler.models.architecture.attention_rules import AttentionRules

_WARP = 32


def paged_decode(original: tirx.PrimFunc, rules: AttentionRules) -> tirx.PrimFunc:
    """One query token for each sequence. `original` is TVM's kernel, whose parameters are kept."""
    scale = original.params[-1]
    if rules.alibi:
        return add_in_decode(original, partial(_alibi, int(original.params[0].shape[1])))
    made = _with_scores_of(original, rules)
    if rules.window:
        made = hide_in_decode(made, lambda query, key: sees_in_layer(rules, scale, query=query, key=key))
    return with_sinks_of_decode(made) if rules.sinks else made


def with_sinks_of_decode(made: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel for one query token of each sequence, followed by one that adds scores of no key."""
    queries, pages, page_starts = made.params[:3]
    first_keys, _, output, logarithms = made.params[5:9]

    def begins(sequence: Expression) -> Expression:
        return tirx.And(first_keys[sequence] == 0, page_starts[sequence] != page_starts[sequence + 1])

    return followed_by(made, statement(lambda: add_sinks(queries, output, logarithms, int(pages.shape[2]), begins)))


def paged_prefill(original: tirx.PrimFunc, rules: AttentionRules) -> tirx.PrimFunc:
    """Query tokens of sequences over what the cache holds. `original` is TVM's kernel, whose parameters are kept."""
    queries, starts, pages, page_starts = original.params[:4]
    first_keys, positions, output, logarithms = original.params[6:10]
    made = _prefill(original, rules, starts=starts, first_keys=first_keys, positions=positions)
    if not rules.sinks:
        return made

    def begins(sequence: Expression) -> Expression:
        return tirx.And(first_keys[sequence] == 0, page_starts[sequence] != page_starts[sequence + 1])

    return followed_by(made, _sinks_of(queries, starts, begins, output, logarithms, int(pages.shape[2])))


def ragged_prefill(original: tirx.PrimFunc, rules: AttentionRules) -> tirx.PrimFunc:
    """Query tokens of sequences over keys and values given side by side. `original` is TVM's kernel, whose
    parameters are kept."""
    queries, starts, keys = original.params[:3]
    positions, first_keys, output, logarithms = original.params[5:9]
    made = _prefill(original, rules, starts=starts, first_keys=first_keys, positions=positions)
    if not rules.sinks:
        return made

    def begins(sequence: Expression) -> Expression:
        return first_keys[sequence] == 0

    return followed_by(made, _sinks_of(queries, starts, begins, output, logarithms, int(keys.shape[1])))


def sees_in_layer(rules: AttentionRules, scale: Expression, *, query: Expression, key: Expression) -> Expression:
    """Whether a query of a layer with this scale sees a key that is not behind it, by their positions."""
    return tirx.Or(tirx.Not(sees_less(scale)), key >= oldest_seen(rules, query))


def capped(score: Expression, cap: float) -> Expression:
    """A score s in units of log2(e) becomes cap tanh(s / cap) in these."""
    bound = T.float32(cap * math.log2(math.e))
    return tirx.tanh(score / bound) * bound


def _alibi(heads: int, head: Expression, ahead: Expression) -> Expression:
    """What is added to a score in units of log2(e); keys that a query sees are `ahead` of it by 0 or less."""
    return slope(head, heads) * T.float32(math.log2(math.e)) * T.Cast("float32", ahead)


def _with_scores_of(original: tirx.PrimFunc, rules: AttentionRules) -> tirx.PrimFunc:
    made = with_scale(original, lambda scale: factor(scale, rules)) if rules.window else original
    return with_scores(made, lambda score: capped(score, rules.soft_cap)) if rules.soft_cap else made


def _prefill(original: tirx.PrimFunc, rules: AttentionRules, **given: Any) -> tirx.PrimFunc:
    if rules.alibi:
        return add_in_prefill(original, partial(_alibi, int(original.params[0].shape[1])), **given)
    made = _with_scores_of(original, rules)
    if not rules.window:
        return made
    scale = original.params[-1]
    return hide_in_prefill(made, lambda query, key: sees_in_layer(rules, scale, query=query, key=key), **given)


def _sinks_of(
    queries: Buffer,
    starts: Buffer,
    begins: Callable[[Expression], Expression],
    output: Buffer,
    logarithms: Buffer,
    key_heads: int,
) -> tirx.Stmt:
    def of_token(token: Expression) -> Expression:
        sequence = register("int32", T.int32(0))
        with T.serial(0, starts.shape[0] - 1) as number, gpu.when(starts[number] <= token):
            store(sequence, T.Cast("int32", number), 0)
        return begins(T.bind(sequence[0]))

    return statement(lambda: add_sinks(queries, output, logarithms, key_heads, of_token))


def add_sinks(
    queries: Buffer,
    output: Buffer,
    logarithms: Buffer,
    key_heads: int,
    begins: Callable[[Expression], Expression],
) -> None:
    """Multiplies the results (tokens, heads, head_dim) by the part of the softmax that keys have beside the score of no
    key, a warp for each head. `begins` says of a token whether its keys are the text's first."""
    given, head_dim = int(queries.shape[1]) // key_heads, int(queries.shape[2])
    group = given - 1
    with (
        T.thread_binding(0, queries.shape[0], thread="blockIdx.x") as token,
        T.thread_binding(0, key_heads * group, thread="blockIdx.y") as number,
        T.thread_binding(0, _WARP, thread="threadIdx.x") as lane,
    ):
        key_head, place = T.bind(tirx.floordiv(number, group)), T.bind(tirx.floormod(number, group))
        head = T.bind(key_head * given + place)
        begun = register("int32", T.Cast("int32", begins(token)))
        with gpu.when(begun[0] != 0):
            score = T.Cast("float32", queries[token, key_head * given + group, place]) * T.float32(math.log2(math.e))
            sink = register("float32", score)[0]
            logarithm = register("float32", logarithms[token, head])[0]
            most = register("float32", T.max(logarithm, sink))[0]
            weight = register("float32", tirx.exp2(logarithm - most))[0]
            total = register("float32", weight + tirx.exp2(sink - most))[0]
            with gpu.unrolled(-(-head_dim // _WARP)) as turn:
                d = T.bind(turn * _WARP + lane)
                with gpu.when(d < head_dim):
                    value = T.Cast("float32", output[token, head, d]) * weight / total
                    store(output, converted(value, str(output.dtype), 1), token, head, d)
            gpu.synchronize()  # every thread has read the logarithm
            with gpu.when(lane == 0):
                store(logarithms, most + tirx.log2(total), token, head)
