"""Attention of one token over the paged cache on a GPU: the numbers of the kernel's own CUDA text, run on the CPU."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.relax.frontend.nn.llm._decode_kernels import _attention_decode

from mlcbuild.compiler.backends.cuda.kernels import attention
from mlcbuild.compiler.backends.cuda.kernels.attention_block import DecodeShape
from mlcbuild.compiler.backends.cuda.schedule import SCHEDULING
from mlcbuild.compiler.kernels.measured_inputs import Pass, decode_inputs
from mlcbuild.compiler.kernels.scheduling import ChosenShape, apply_rules, shaped_rule_of
from mlcbuild.compiler.script_parsing import quick_script_parsing
from mlcbuild.runtime.measuring.arguments import ArgumentSets
from tests.compiler.attention_reference import LLAMA3, THETA, rotated
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET, Array, launches, run_cuda

_TARGET = tvm.target.Target(CUDA_TARGET)
_SHARED = DecodeShape(short=0)
_EAGER = DecodeShape(warps=2, blocks=64, tokens=32, alone=32, short=0)  # has sequences shared that are not long
needs_gxx = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")


@dataclass(frozen=True, kw_only=True)
class _Heads:
    keys: int = 2
    queries: int = 8
    dim: int = 64

    def original(self, *, sliding: bool = False, rule: dict[str, Any] | None = None) -> tirx.PrimFunc:
        """TVM's kernel."""
        with quick_script_parsing():
            return _attention_decode(self.keys, self.queries, self.dim, "float16", sliding, rule or {}, _TARGET)


@functools.cache
def _paged_decode(heads: _Heads, *, shape: DecodeShape | None = None, sliding: bool = False) -> tirx.PrimFunc:
    """Ours, one object for each case: compiled once for all numbers that it is tried with."""
    return attention.paged_decode(
        heads.original(sliding=sliding), rope_scaling={}, sliding_window=sliding, shape=shape or DecodeShape()
    )


class _Sequences:
    """A paged cache with sequences of the given lengths, their pages in any order, and a query for each. What lies
    behind a sequence's last token is no number. `offset` tokens behind the first `sink` ones are out of the window."""

    def __init__(self, heads: _Heads, lengths: list[int], *, sink: int = 0, offset: int = 0, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        counts = [(length + 15) // 16 for length in lengths]
        self.pages = random.standard_normal((sum(counts) + 3, 2, heads.keys, 16, heads.dim)).astype(np.float16)
        self.starts = np.cumsum([0, *counts]).astype(np.int32)
        self.numbers = random.permutation(len(self.pages))[: sum(counts)].astype(np.int32)
        self.last = np.array([(length - 1) % 16 + 1 if length else 0 for length in lengths], np.int32)
        self.queries = random.standard_normal((len(lengths), heads.queries, heads.dim)).astype(np.float16)
        self.heads, self.lengths, self.sink, self.offset = heads, lengths, sink, offset
        for sequence, (last, count) in enumerate(zip(self.last, counts, strict=True)):
            if count:
                self.pages[self.numbers[self.starts[sequence + 1] - 1], :, :, last:] = np.nan

    def arrays(self, *, sliding: bool) -> list[Array]:
        batch = len(self.lengths)
        window = np.stack([self.last, np.full(batch, self.offset), np.full(batch, self.sink)]).astype(np.int32)
        first = np.arange(batch, dtype=np.int32) * 7  # a sequence's first key may be at any position
        positions = np.array([first[i] + len(self.of(i)[0]) - 1 for i in range(batch)], np.int32)
        results: list[Array] = [np.full_like(self.queries, np.nan), np.full(self.queries.shape[:2], np.nan, np.float32)]
        lengths = window if sliding else self.last
        return [self.queries, self.pages, self.starts, self.numbers, lengths, first, positions, *results]

    def of(self, sequence: int) -> tuple[Array, Array]:
        """Keys and values (tokens, heads, dim) that a sequence sees."""
        used = self.pages[self.numbers[self.starts[sequence] : self.starts[sequence + 1]]]
        length = self.lengths[sequence]
        seen = [*range(min(self.sink, length)), *range(self.offset or self.sink, length)]
        keys, values = (
            used[:, which].transpose(0, 2, 1, 3).reshape(-1, self.heads.keys, self.heads.dim)[seen] for which in (0, 1)
        )
        return keys, values


def _attended(query: Array, keys: Array, values: Array) -> tuple[Array, Array]:
    """Results (heads, dim) of a query (heads, dim), and the base-2 logarithms of the softmax's denominators."""
    group = query.shape[0] // keys.shape[1]
    keys, values = (np.repeat(array, group, axis=1).astype(np.float64) for array in (keys, values))
    scores = np.einsum("hd,khd->hk", query.astype(np.float64), keys) / np.sqrt(query.shape[-1])
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    return np.einsum("hk,khd->hd", weights / total, values), ((largest + np.log(total))[:, 0]) / np.log(2)


def _check(
    kernel: tirx.PrimFunc,
    sequences: _Sequences,
    directory: Path,
    *,
    sliding: bool = False,
    rotates: bool = False,
    rule: dict[str, Any] | None = None,
) -> None:
    arrays = sequences.arrays(sliding=sliding)
    scale = sequences.heads.dim**-0.5
    found = run_cuda(kernel, arrays, directory, int(rotates), 1.0, THETA, scale)
    for sequence, length in enumerate(sequences.lengths):
        if length == 0:
            assert not found[7][sequence].any()
            np.testing.assert_array_equal(found[8][sequence], np.float32(-5e4))
            continue
        query = sequences.queries[sequence]
        keys, values = sequences.of(sequence)
        if rotates:
            query = rotated(query[None], arrays[6][sequence : sequence + 1], rule or {})[0]
            keys = rotated(keys, arrays[5][sequence] + np.arange(len(keys)), rule or {})
        expected, logarithms = _attended(query, keys, values)
        # Weights, results and what is rotated are rounded to halves.
        np.testing.assert_allclose(found[7][sequence], expected, atol=6e-3 if rotates else 2e-3)
        np.testing.assert_allclose(found[8][sequence], logarithms, atol=6e-3 if rotates else 1e-4)


_HEADS = [
    _Heads(),
    _Heads(dim=128),
    _Heads(keys=3, queries=3, dim=128),
    _Heads(keys=1, queries=8, dim=96),
    _Heads(keys=2, queries=6, dim=80),
    _Heads(keys=1, queries=12, dim=64),
    _Heads(keys=2, queries=32, dim=32),
]


def _slow_but_first(cases: list[_Heads]) -> list[Any]:
    return [cases[0], *(pytest.param(case, marks=pytest.mark.slow) for case in cases[1:])]


@needs_gxx
@pytest.mark.parametrize("rotates", [False, True])
@pytest.mark.parametrize("heads", _slow_but_first(_HEADS), ids=str)
def test_a_token_attends_to_what_the_cache_holds(programs: Path, heads: _Heads, rotates: bool) -> None:
    kernel = _paged_decode(heads)
    for lengths in ([1], [15, 16, 17], [100, 33]):
        _check(kernel, _Sequences(heads, lengths), programs, rotates=rotates)
    _check(_paged_decode(heads, shape=_SHARED), _Sequences(heads, [100, 33]), programs, rotates=rotates)


def test_a_short_sequence_has_a_block_of_many_warps() -> None:
    kernel = _paged_decode(_Heads(keys=4, queries=32, dim=64))
    found = {}
    for count, length in ((1, 250), (1, 300), (33, 250), (34, 250)):
        arrays = _Sequences(_Heads(keys=4, queries=32, dim=64), [length] * count).arrays(sliding=False)
        first, *others = launches(kernel, arrays, 0, 1.0, THETA, 1.0)[1]
        found[count, length] = first.block[1], len(others)
    assert found == {(1, 250): (8, 0), (1, 300): (2, 1), (33, 250): (8, 0), (34, 250): (2, 1)}


@needs_gxx
@pytest.mark.parametrize("rotates", [False, True])
@pytest.mark.parametrize("heads", _slow_but_first([_HEADS[1], _HEADS[4], _HEADS[5]]), ids=str)
def test_blocks_that_share_a_sequence_give_the_same(programs: Path, heads: _Heads, rotates: bool) -> None:
    kernel = _paged_decode(heads, shape=_EAGER)
    for lengths in ([100], [17, 300, 1], [2000]):
        sequences = _Sequences(heads, lengths)
        assert len(launches(kernel, sequences.arrays(sliding=False), 0, 1.0, THETA, 1.0)[1]) == 2
        _check(kernel, sequences, programs, rotates=rotates)


@needs_gxx
@pytest.mark.parametrize("shape", [DecodeShape(), _EAGER], ids=["alone", "shared"])
@pytest.mark.parametrize("rotates", [False, True])
@pytest.mark.parametrize(
    ("length", "sink", "offset"),
    [(100, 4, 37), *(pytest.param(*case, marks=pytest.mark.slow) for case in [(130, 0, 19), (20, 0, 0), (90, 20, 21)])],
)
def test_a_sliding_window_leaves_out_what_is_between_sink_and_window(
    programs: Path, shape: DecodeShape, rotates: bool, length: int, sink: int, offset: int
) -> None:
    heads = _Heads()
    kernel = _paged_decode(heads, shape=shape, sliding=True)
    sequences = _Sequences(heads, [length], sink=sink, offset=offset)
    _check(kernel, sequences, programs, sliding=True, rotates=rotates)


@needs_gxx
def test_frequencies_follow_the_rule_of_the_model(programs: Path) -> None:
    heads = _Heads()
    kernel = attention.paged_decode(heads.original(rule=LLAMA3), rope_scaling=LLAMA3)
    _check(kernel, _Sequences(heads, [70]), programs, rotates=True, rule=LLAMA3)


@needs_gxx
@pytest.mark.parametrize("shape", [DecodeShape(), _EAGER], ids=["alone", "shared"])
def test_a_sequence_without_tokens_gives_zeros(programs: Path, shape: DecodeShape) -> None:
    heads = _Heads()
    kernel = _paged_decode(heads, shape=shape)
    _check(kernel, _Sequences(heads, [0, 200]), programs)


@pytest.mark.slow
def test_long_sequences_are_shared_where_blocks_are_few() -> None:
    heads = _Heads(keys=8, queries=32, dim=128)
    kernel = _paged_decode(heads)
    grids = []
    for lengths in ([48], [4096], [4096] * 8, [512] * 40):
        arrays = _Sequences(heads, lengths).arrays(sliding=False)
        grids.append([launch.grid for launch in launches(kernel, arrays, 0, 1.0, THETA, 1.0)[1]])
    assert grids == [[(8, 1, 1)], [(8, 32, 1), (32, 1, 1)], [(8, 6, 8), (32, 8, 1)], [(8, 1, 40)]]


@needs_gxx
def test_what_measurements_choose_has_the_numbers_of_the_default(tmp_path: Path) -> None:
    """The kernel is measured on a cache that is well formed; here by its text on this processor, and small."""
    kernel = _paged_decode(_Heads())
    rule = shaped_rule_of(kernel, _TARGET, SCHEDULING.rules)
    assert rule is attention.tune_paged_decode
    shapes = rule.candidates(kernel, _TARGET)
    assert shapes[0] == {"warps": 2, "blocks": 396, "tokens": 32, "alone": 64, "short": 256}
    assert len(shapes) == 120
    inputs = decode_inputs(kernel, [Pass(batch=2, context=96)])
    arrays = ArgumentSets(inputs.arguments, lambda array: array).arrays(inputs.sizes[0])
    tensors, scalars = arrays[:9], [array.item() for array in arrays[9:]]
    found = []
    for chosen in (None, {"warps": 4, "blocks": 132, "tokens": 32, "alone": 256, "short": 256}, shapes[-1]):
        scheduled = apply_rules(
            kernel, _TARGET, SCHEDULING.rules, ChosenShape(rule=rule.word, shape=chosen) if chosen else None
        )
        assert (scheduled is kernel) is (chosen is None)
        found.append(run_cuda(scheduled, tensors, tmp_path, *scalars)[7:])
    for results, logarithms in found[1:]:
        np.testing.assert_allclose(results, found[0][0], atol=2e-3)
        np.testing.assert_allclose(logarithms, found[0][1], atol=1e-4)
    assert np.isfinite(found[0][0]).all()
    assert found[0][0].std() > 1e-3


def test_a_way_to_share_the_work_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="warps=0"):
        DecodeShape(warps=0)


@pytest.mark.parametrize(
    ("dim", "dtype", "rule", "arch"),
    [
        (64, "float32", {}, "sm_90"),
        (64, "float16", {}, "sm_75"),
        (72, "float16", {}, "sm_90"),
        (64, "float16", {"rope_type": "gptj"}, "sm_90"),
    ],
    ids=str,
)
def test_other_kernels_of_tvm_stay(dim: int, dtype: str, rule: dict[str, Any], arch: str) -> None:
    with quick_script_parsing():
        original = _attention_decode(1, 1, dim, dtype, False, {}, _TARGET)
    assert not attention.fits(original, rule, tvm.target.Target(CUDA_TARGET | {"arch": arch}))
