"""Kernels by which a serving engine changes logits where they are, and moves rows of probabilities.

Logits and probabilities are float32; rows, tokens and counts are int32. The length of a row is known at run time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.launching import WARP, Threads, kernel
from mlcbuild.compiler.kernels.building import Buffer, Expression, store

_WARPS = 8
_EACH = 4  # numbers of a row that a thread moves
_WORD = 32  # tokens that a word of a mask is for
_LOWEST = -3.4028234663852886e38


def add_bias() -> tirx.PrimFunc:
    """(logits (b, v), rows (n,), tokens (n,), biases (n,) float32): a bias is added to the logit of a token in a row.
    The pairs of row and token are distinct."""
    logits, count = _logits(), _size("num_token")
    rows, tokens = _list("pos2seq_id", count), _list("token_ids", count)
    biases = _list("logit_bias", count, "float32")

    def body(threads: Threads) -> None:
        with _each(threads, count) as number:
            row, token = T.bind(rows[number]), T.bind(tokens[number])
            store(logits, logits[row, token] + biases[number], row, token)

    return kernel([logits, rows, tokens, biases], body, grid=_grid(count), warps=_WARPS)


def penalize() -> tirx.PrimFunc:
    """(logits (b, v), row of each sequence (s,), sequences (n,), tokens (n,), counts (n,), penalties (s, 3) float32):
    what a sequence has said becomes less likely.

    From the logit of a token that was said `count` times are taken the first penalty and `count` times the second
    (presence and frequency); what is left is divided by the third (repetition), or, below 0, multiplied with it.
    """
    logits, count, sequences = _logits(), _size("num_token"), _size("num_seq")
    row_of = _list("seq_ids", sequences)
    sequence_of, tokens, counts = (_list(name, count) for name in ("pos2seq_id", "token_ids", "token_cnt"))
    penalties = tirx.decl_buffer((sequences, 3), "float32", name="penalties")

    def body(threads: Threads) -> None:
        with _each(threads, count) as number:
            sequence, token = T.bind(sequence_of[number]), T.bind(tokens[number])
            row = T.bind(row_of[sequence])
            said = T.Cast("float32", counts[number])
            left = T.bind(logits[row, token] - (penalties[sequence, 0] + said * penalties[sequence, 1]))
            repetition = T.bind(penalties[sequence, 2])
            store(logits, tirx.if_then_else(left < 0, left * repetition, left / repetition), row, token)

    parameters = [logits, row_of, sequence_of, tokens, counts, penalties]
    return kernel(parameters, body, grid=_grid(count), warps=_WARPS)


def mask() -> tirx.PrimFunc:
    """(logits (b, v), rows (s,), masks (b, words) int32): tokens whose bit in the row's mask is 0 become impossible."""
    logits, sequences = _logits(), _size("num_seq")
    width = logits.shape[1]
    rows = _list("seq_ids", sequences)
    masks = tirx.decl_buffer((logits.shape[0], _size("num_words")), "int32", name="bitmask")

    def body(threads: Threads) -> None:
        row = T.bind(rows[threads.y])
        with _each(threads, width) as token:
            bits = masks[row, tirx.floordiv(token, _WORD)] >> T.Cast("int32", tirx.floormod(token, _WORD))
            with gpu.when((bits & 1) == 0):
                store(logits, T.float32(_LOWEST), row, token)

    grid = (_grid(width)[0], sequences)
    return kernel([logits, rows, masks], body, grid=grid, warps=_WARPS)


def scatter_rows(dtype: str) -> tirx.PrimFunc:
    """(rows (b, v), places (b,), table (m, v)): the rows are put at their places in the table."""
    return _move(dtype, into_table=True)


def gather_rows(dtype: str) -> tirx.PrimFunc:
    """(table (m, v), places (b,), rows (b, v)): the rows become those at the places in the table."""
    return _move(dtype, into_table=False)


def _move(dtype: str, *, into_table: bool) -> tirx.PrimFunc:
    count, width = _size("batch_size"), _size("n")
    rows = tirx.decl_buffer((count, width), dtype, name="rows")
    table = tirx.decl_buffer((_size("m"), width), dtype, name="table")
    places = _list("indices", count)

    def body(threads: Threads) -> None:
        place = T.bind(places[threads.y])
        with gpu.unrolled(_EACH) as piece:
            number = T.bind((threads.x * _EACH + piece) * threads.count + threads.number)
            with gpu.when(number < width):
                if into_table:
                    store(table, rows[threads.y, number], place, number)
                else:
                    store(rows, table[place, number], threads.y, number)

    grid = (tirx.ceildiv(width, _WARPS * WARP * _EACH), count)
    source, target = (rows, table) if into_table else (table, rows)
    return kernel([source, places, target], body, grid=grid, warps=_WARPS)


@contextlib.contextmanager
def _each(threads: Threads, count: Expression) -> Iterator[Expression]:
    """A thread's own number, for those threads of the row of blocks that have one below `count`."""
    number = T.bind(threads.x * threads.count + threads.number)
    with gpu.when(number < count):
        yield number


def _grid(count: Expression) -> tuple[Expression, Expression]:
    return (tirx.ceildiv(count, _WARPS * WARP), 1)


def _size(name: str) -> tirx.Var:
    return tirx.Var(name, "int64")


def _logits() -> Buffer:
    return tirx.decl_buffer((_size("batch_size"), _size("vocab_size")), "float32", name="logits")


def _list(name: str, count: tirx.Var, dtype: str = "int32") -> Buffer:
    return tirx.decl_buffer((count,), dtype, name=name)
