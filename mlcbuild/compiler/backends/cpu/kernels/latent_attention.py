"""Multi-head latent attention for CPUs: the kernels of a cache of latent vectors.

As in `attention`, a query token and some of its heads are one piece of work. All heads meet the same keys, so heads
that are computed together read them once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import s_tir, tirx
from tvm.relax.frontend.nn.llm.kv_cache import _merge_state_inplace_cpu

from mlcbuild.compiler.backends.cpu.kernels.attention_keys import LatentPages, Row, not_behind
from mlcbuild.compiler.backends.cpu.kernels.attention_scores import HEADS_AT_ONCE, Query, attend_heads
from mlcbuild.compiler.kernels.building import Buffer, Expression, loop, statement, store
from mlcbuild.compiler.models.architecture.attention_rules import NO_RULES
from mlcbuild.compiler.models.architecture.latent import ALONE, IN_CACHE
from mlcbuild.compiler.models.caches.kv_cache import KVCacheGeometry, LatentGeometry
from mlcbuild.compiler.passes.latent_kv_cache import LatentKernels

_PAGE = 16  # tokens, as in TVM's kernels


def latent_kernels(geometry: KVCacheGeometry) -> LatentKernels:
    """The kernels of a cache."""
    latent, dtype = geometry.latent, geometry.dtype
    assert latent is not None
    return LatentKernels(
        ragged=_ragged(geometry.num_attention_heads, latent, dtype),
        paged=_paged(geometry.num_attention_heads, latent.rank, geometry.head_dim, dtype),
        merge=_merge_state_inplace_cpu(dtype),
        copy_page=_copy_page(geometry.head_dim, dtype),
    )


def _ragged(heads: int, latent: LatentGeometry, dtype: str) -> tirx.PrimFunc:
    tokens, keys_count, starts_count, sequences = (
        tirx.Var(name, "int32") for name in ("tokens", "keys", "starts", "n")
    )
    queries = _buffer("queries", (tokens, heads, latent.key_dim), dtype)
    starts = _buffer("query_starts", (starts_count,), "int32")
    keys = _buffer("keys", (keys_count, heads, latent.key_dim), dtype)
    values = _buffer("values", (keys_count, heads, latent.value_dim), dtype)
    key_starts = _buffer("key_starts", (starts_count,), "int32")
    positions = _buffer("query_positions", (tokens,), "int32")
    first_positions = _buffer("first_positions", (sequences,), "int32")
    output = _buffer("output", (tokens, heads, latent.value_dim), dtype)
    logarithms = _buffer("logarithms", (tokens, heads), "float32")
    causal, mode = tirx.Var("causal", "int32"), tirx.Var("rotary_mode", "int32")
    factors = [tirx.Var(name, "float32") for name in ("position_scale", "theta")]
    scale = tirx.Var("scale", "float32")

    def attend() -> None:
        with loop(starts_count - 1) as sequence:
            first, first_key = T.bind(starts[sequence]), T.bind(key_starts[sequence])
            count = T.bind(starts[sequence + 1] - first)
            key_count = T.bind(key_starts[sequence + 1] - first_key)
            with loop(count * heads, parallel=True) as number:
                place, head = tirx.floordiv(number, heads), tirx.floormod(number, heads)

                def at(key: Expression, head: Expression = head) -> tuple[Row, Row]:
                    row = T.bind(first_key + key)
                    return (lambda d: keys[row, head, d]), (lambda d: values[row, head, d])

                query = Query(queries=queries, output=output, logarithms=logarithms, row=first + place, scale=scale)
                seen = not_behind(causal, place, count, key_count, most=keys_count)
                attend_heads(query, head, heads, seen, at, None, rules=NO_RULES, begins=T.bool(True))

    def mark_logarithms() -> None:
        """What `architecture.latent` says of logarithms."""
        single = T.alloc_buffer((1,), "int32")
        store(single, T.int32(1), 0)
        with loop(starts_count) as sequence, T.If(starts[sequence] != sequence), T.Then():
            store(single, T.int32(0), 0)
        value = tirx.Select(single[0] == 1, T.float32(IN_CACHE), T.float32(ALONE))
        with (
            loop(starts_count - 1) as sequence,
            T.If(tirx.any(single[0] == 1, first_positions[sequence] == 0)),
            T.Then(),
            loop((starts[sequence + 1] - starts[sequence]) * heads) as number,
        ):
            store(logarithms, value, starts[sequence] + tirx.floordiv(number, heads), tirx.floormod(number, heads))

    given = [queries, starts, keys, values, key_starts, positions, first_positions, output, logarithms]
    return _kernel([*given, causal, mode, *factors, scale], [attend, mark_logarithms])


def _paged(heads: int, rank: int, kept: int, dtype: str) -> tirx.PrimFunc:
    tokens, starts_count, page_count, all_pages, sequences = (
        tirx.Var(name, "int32") for name in ("tokens", "starts", "page_count", "all_pages", "n")
    )
    queries = _buffer("queries", (tokens, heads, kept), dtype)
    starts = _buffer("query_starts", (starts_count,), "int32")
    pages = _buffer("pages", (all_pages, _PAGE, kept), dtype, offset="int64")
    page_starts = _buffer("page_starts", (starts_count,), "int32")
    page_numbers = _buffer("page_numbers", (page_count,), "int32")
    lengths = _buffer("lengths", (sequences,), "int32")
    output = _buffer("output", (tokens, heads, rank), dtype)
    logarithms = _buffer("logarithms", (tokens, heads), "float32")
    causal, scale = tirx.Var("causal", "int32"), tirx.Var("scale", "float32")
    parts = heads // next(count for count in range(HEADS_AT_ONCE, 0, -1) if heads % count == 0)

    def attend() -> None:
        with loop(starts_count - 1) as sequence:
            cache = LatentPages(pages, page_starts, page_numbers, lengths, False, sequence)
            key_count, first = T.bind(cache.length()), T.bind(starts[sequence])
            count = T.bind(starts[sequence + 1] - first)
            with loop(count * parts, parallel=True) as number:
                place, part = tirx.floordiv(number, parts), tirx.floormod(number, parts)
                query = Query(queries=queries, output=output, logarithms=logarithms, row=first + place, scale=scale)
                seen = not_behind(causal, place, count, key_count, most=cache.most())
                attend_heads(query, part, parts, seen, cache.keys(part), None, rules=NO_RULES, begins=T.bool(True))

    given = [queries, starts, pages, page_starts, page_numbers, lengths, output, logarithms]
    return _kernel([*given, causal, scale], [attend])


def _copy_page(kept: int, dtype: str) -> tirx.PrimFunc:
    count, size = tirx.Var("pages", "int64"), tirx.Var("page_size", "int64")
    pages = _buffer("pages", (count, size, kept), dtype, offset="int64")
    source, target, length = (tirx.Var(name, "int64") for name in ("source", "target", "length"))

    def copy() -> None:
        with loop(length) as token, loop(kept) as d:
            store(pages, pages[source, token, d], target, token, d)

    return _kernel([pages, source, target, length], [copy])


def _buffer(name: str, shape: tuple[int | Expression, ...], dtype: str, *, offset: str = "int32") -> Buffer:
    """A parameter that may be a view of a larger array."""
    return tirx.decl_buffer(shape, dtype, name=name, elem_offset=tirx.Var(f"{name}_offset", offset))


def _kernel(params: Sequence[Buffer | tirx.Var], steps: Sequence[Callable[[], None]]) -> tirx.PrimFunc:
    statements = [statement(step) for step in steps]
    body = statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
    block = s_tir.SBlock(iter_vars=[], reads=[], writes=[], name_hint="root", body=body)
    made = tirx.PrimFunc(list(params), s_tir.SBlockRealize([], True, block))
    return made.with_attrs({"tirx.noalias": True, "tirx.is_scheduled": True, "s_tir": True})
