"""Attention by Triton's interpreter, on the CPU, against torch. `test_triton.py` runs it in a process of its own,
because whether functions are interpreted is decided as they are imported."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton

from mlcbuild.compiler.backends.cuda.triton_kernels.attention import prefill

_PAGE = 16
_ROWS, _KEYS = 32, 16


def _starts(counts: Sequence[int]) -> torch.Tensor:
    return torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32)


def largest_errors(
    queries: Sequence[int], keys: Sequence[int], *, heads: int, key_heads: int, head_dim: int, paged: bool, causal: bool
) -> tuple[float, float]:
    """Of results, and of the logarithms of denominators, for sequences of so many queries and keys."""
    torch.manual_seed(0)
    tokens, group = sum(queries), heads // key_heads
    query = torch.randn(tokens, heads, head_dim)
    own: list[tuple[torch.Tensor, torch.Tensor]]
    if paged:
        counts = [-(-count // _PAGE) for count in keys]
        pages = torch.randn(sum(counts) + 3, 2, key_heads, _PAGE, head_dim)
        numbers = torch.randperm(len(pages))[: sum(counts)].to(torch.int32)
        starts, lengths = _starts(counts), torch.tensor([(count - 1) % _PAGE + 1 for count in keys], dtype=torch.int32)
        given = (pages, pages[0, 1], starts, numbers, lengths)
        own = []
        for place, count in enumerate(keys):
            chosen = pages[numbers[starts[place] : starts[place + 1]].long()]
            by_key = chosen.permute(1, 0, 3, 2, 4).reshape(2, -1, key_heads, head_dim)[:, :count]
            own.append((by_key[0], by_key[1]))
    else:
        key, value = torch.randn(2, sum(keys), key_heads, head_dim)
        starts = _starts(keys)
        given = (key, value, starts, starts, starts)
        own = list(zip(key.split(list(keys)), value.split(list(keys)), strict=True))
    output, logarithms = torch.full_like(query, 7.0), torch.full((tokens, heads), 7.0)
    query_starts = _starts(queries)
    scale = head_dim**-0.5
    prefill[(triton.cdiv(tokens * group, _ROWS) + len(queries), key_heads)](
        query, query_starts, *given, output, logarithms, len(queries), int(causal), scale,
        GROUP=group, KEY_HEADS=key_heads, HEAD_DIM=head_dim, BLOCK_D=triton.next_power_of_2(head_dim),
        PAGE=_PAGE if paged else 0, BLOCK_M=_ROWS, BLOCK_N=_KEYS,
    )  # fmt: skip
    of_results = of_logarithms = 0.0
    for place, (key, value) in enumerate(own):
        rows = slice(int(query_starts[place]), int(query_starts[place + 1]))
        scores = torch.einsum("nhd,mhd->hnm", query[rows], key.repeat_interleave(group, 1)) * scale
        if causal:
            seen = torch.arange(len(key))[None] <= torch.arange(queries[place])[:, None] + len(key) - queries[place]
            scores = scores.masked_fill(~seen, float("-inf"))
        expected = torch.einsum("hnm,mhd->nhd", scores.softmax(-1).nan_to_num(), value.repeat_interleave(group, 1))
        denominator = torch.logsumexp(scores, -1).T / math.log(2) if len(key) else torch.full((1, 1), -5e4)
        of_results = max(of_results, float((output[rows] - expected).abs().max()))
        of_logarithms = max(of_logarithms, float((logarithms[rows] - denominator).abs().max()))
    return of_results, of_logarithms


def main() -> None:
    for paged, causal in itertools.product((False, True), (False, True)):
        for queries, keys, head_dim in (((50, 1, 7), (50, 33, 23), 16), ((3, 2), (40, 2), 24)):
            if not causal:
                keys = (0, *keys[1:])  # what a sequence has in the cache before its first token
            found = largest_errors(queries, keys, heads=6, key_heads=2, head_dim=head_dim, paged=paged, causal=causal)
            print(paged, causal, *found)
            assert max(found) < 2e-5, (paged, causal, queries, found)


if __name__ == "__main__":
    main()
