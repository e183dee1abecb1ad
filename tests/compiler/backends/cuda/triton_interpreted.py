"""Attention by Triton's interpreter, on the CPU, against torch. `test_triton.py` runs it in a process of its own,
because whether functions are interpreted is decided as they are imported."""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Sequence

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton

from mlcbuild.compiler.backends.cuda.triton_kernels.attention import prefill
from mlcbuild.compiler.models.architecture.attention_rules import AttentionRules

_PAGE = 16
_ROWS, _KEYS = 32, 16


def _starts(counts: Sequence[int]) -> torch.Tensor:
    return torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32)


def _slopes(heads: int) -> torch.Tensor:
    """ALiBi's, as its paper has them."""
    whole = 2 ** math.floor(math.log2(heads))
    base, between = 2 ** (-8 / whole), 2 ** (-4 / whole)
    powers = [base ** (n + 1) for n in range(whole)]
    return torch.tensor([*powers, *(between ** (2 * n + 1) for n in range(heads - whole))])


def _expected(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, rules: AttentionRules, group: int, causal: bool,
    limited: bool, positions: torch.Tensor, first: int, sinks: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Results and logarithms of one sequence, by the definition. `sinks` are (tokens, heads)."""
    heads = query.shape[1]
    scores = torch.einsum("nhd,mhd->hnm", query, key.repeat_interleave(group, 1)) * query.shape[-1] ** -0.5
    if rules.soft_cap:
        scores = rules.soft_cap * torch.tanh(scores / rules.soft_cap)
    of_keys = first + torch.arange(len(key))
    distance = positions[:, None] - of_keys[None]
    if rules.alibi:
        scores -= _slopes(heads)[:, None, None] * distance
    seen = torch.ones(distance.shape, dtype=torch.bool)
    if causal:
        seen &= distance >= 0
    if rules.window and limited:
        oldest = positions - (positions % rules.window if rules.chunked else rules.window - 1)
        seen &= of_keys[None] >= oldest[:, None]
    scores = scores.masked_fill(~seen, float("-inf"))
    has_sinks = rules.sinks and first == 0 and len(key) > 0
    whole = torch.cat((scores, sinks.T[:, :, None]), -1) if has_sinks else scores
    weights = whole.softmax(-1)[..., : len(key)].nan_to_num()
    result = torch.einsum("hnm,mhd->nhd", weights, value.repeat_interleave(group, 1))
    logarithms = (torch.logsumexp(whole, -1) / math.log(2)).clamp(min=-5e4)
    return result, logarithms.T


def largest_errors(
    queries: Sequence[int], keys: Sequence[int], *, rules: AttentionRules, paged: bool, causal: bool, limited: bool,
    heads: int = 6, key_heads: int = 2, head_dim: int = 16, first: int = 0,
) -> tuple[float, float]:  # fmt: skip
    """Of results, and of the logarithms of denominators, for sequences of so many queries and keys, of which the first
    is at `first` in the text. `limited` layers see less than the others."""
    torch.manual_seed(0)
    tokens, group = sum(queries), heads // key_heads
    given = group + int(rules.sinks)
    query = torch.randn(tokens, key_heads * given, head_dim)
    own: list[tuple[torch.Tensor, torch.Tensor]]
    if paged:
        counts = [-(-count // _PAGE) for count in keys]
        pages = torch.randn(sum(counts) + 3, 2, key_heads, _PAGE, head_dim)
        numbers = torch.randperm(len(pages))[: sum(counts)].to(torch.int32)
        starts, lengths = _starts(counts), torch.tensor([(count - 1) % _PAGE + 1 for count in keys], dtype=torch.int32)
        arrays = (pages, pages[0, 1], starts, numbers, lengths)
        own = []
        for place, count in enumerate(keys):
            chosen = pages[numbers[starts[place] : starts[place + 1]].long()]
            by_key = chosen.permute(1, 0, 3, 2, 4).reshape(2, -1, key_heads, head_dim)[:, :count]
            own.append((by_key[0], by_key[1]))
    else:
        key, value = torch.randn(2, sum(keys), key_heads, head_dim)
        starts = _starts(keys)
        arrays = (key, value, starts, starts, starts)
        own = list(zip(key.split(list(keys)), value.split(list(keys)), strict=True))
    # Queries are the last tokens; without `causal`, they are behind all keys.
    behind = [first + count - (own_queries if causal else 0) for own_queries, count in zip(queries, keys, strict=True)]
    positions = torch.cat([begin + torch.arange(count) for begin, count in zip(behind, queries, strict=True)])
    output, logarithms = torch.full_like(query, 7.0), torch.full(query.shape[:2], 7.0)
    query_starts, scale = _starts(queries), head_dim**-0.5
    prefill[(triton.cdiv(tokens * group, _ROWS) + len(queries), key_heads)](
        query, query_starts, *arrays, positions.to(torch.int32), torch.full((len(keys),), first, dtype=torch.int32),
        output, logarithms, len(queries), int(causal), -scale if limited else scale,
        GROUP=group, KEY_HEADS=key_heads, HEAD_DIM=head_dim, BLOCK_D=triton.next_power_of_2(head_dim),
        PAGE=_PAGE if paged else 0, WINDOW=rules.window, CHUNKED=int(rules.chunked), SOFT_CAP=rules.soft_cap,
        SINKS=int(rules.sinks), ALIBI=4 if rules.alibi else 0, BLOCK_M=_ROWS, BLOCK_N=_KEYS,
    )  # fmt: skip
    of_group = torch.arange(query.shape[1]) % given < group
    of_results = of_logarithms = 0.0
    for place, (key, value) in enumerate(own):
        rows = slice(int(query_starts[place]), int(query_starts[place + 1]))
        sinks = query[rows].reshape(-1, key_heads, given, head_dim)[:, :, -1, :group].reshape(-1, heads)
        expected = _expected(
            query[rows][:, of_group], key, value, rules=rules, group=group, causal=causal, limited=limited,
            positions=positions[rows], first=first, sinks=sinks,
        )  # fmt: skip
        of_results = max(of_results, float((output[rows][:, of_group] - expected[0]).abs().max()))
        of_logarithms = max(of_logarithms, float((logarithms[rows][:, of_group] - expected[1]).abs().max()))
    return of_results, of_logarithms


_RULES = (
    AttentionRules(),
    AttentionRules(window=12, chunked=True, soft_cap=2.0),
    AttentionRules(window=12, sinks=True),
    AttentionRules(alibi=True),
)
_MORE_RULES = (
    AttentionRules(window=40),
    AttentionRules(soft_cap=5.0),
    AttentionRules(window=12, soft_cap=2.0, sinks=True),
)


def main(*, everything: bool) -> None:
    for rules in _RULES + _MORE_RULES if everything else _RULES:
        for paged, causal in itertools.product((False, True), (False, True)):
            # What a sequence has in the cache before its first token is nothing.
            queries, keys = ((50, 1, 7), (60, 33, 23)) if everything else ((20, 1, 5), (30, 33, 17))
            given = keys if causal else (0, *keys[1:])
            for first in (0, 5) if paged and (everything or causal) else (0,):
                limited = rules.window > 0 and (first == 0 or not everything)
                found = largest_errors(
                    queries, given, rules=rules, paged=paged, causal=causal, limited=limited, first=first
                )
                print(rules, paged, causal, limited, first, *found)
                assert max(found) < 3e-5, (rules, paged, causal, limited, first, found)
        found = largest_errors((3, 2), (40, 2), rules=rules, paged=True, causal=True, limited=False, head_dim=24)
        assert max(found) < 3e-5, (rules, found)


if __name__ == "__main__":
    main(everything=sys.argv[1:] == ["all"])
