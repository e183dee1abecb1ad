"""Kernels by which a serving engine changes logits where they are, and moves rows of probabilities or hidden states.

Logits are float32; rows, tokens and counts are int32. The length of a row is known at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import s_tir, tirx

from mlcbuild.compiler.kernels.building import Buffer, loop, statement, store

_WORD = 32  # tokens that a word of a mask is for
_LOWEST = -3.4028234663852886e38
_OPAQUE = 8  # TVM's number of kernels that fusion leaves alone


def add_bias() -> tirx.PrimFunc:
    """(logits (b, v), rows (n,), tokens (n,), biases (n,) float32): a bias is added to a token's logit in a row."""
    logits, count = _logits(), _size("num_token")
    rows, tokens = _list("pos2seq_id", count), _list("token_ids", count)
    biases = _list("logit_bias", count, "float32")

    def body() -> None:
        with loop(count) as number:
            row, token = T.bind(rows[number]), T.bind(tokens[number])
            store(logits, logits[row, token] + biases[number], row, token)

    return _kernel([logits, rows, tokens, biases], body)


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

    def body() -> None:
        with loop(count) as number:
            sequence, token = T.bind(sequence_of[number]), T.bind(tokens[number])
            row = T.bind(row_of[sequence])
            said = T.Cast("float32", counts[number])
            left = T.bind(logits[row, token] - (penalties[sequence, 0] + said * penalties[sequence, 1]))
            repetition = T.bind(penalties[sequence, 2])
            store(logits, tirx.if_then_else(left < 0, left * repetition, left / repetition), row, token)

    return _kernel([logits, row_of, sequence_of, tokens, counts, penalties], body)


def mask() -> tirx.PrimFunc:
    """(logits (b, v), rows (s,), masks (b, words) int32): tokens whose bit in the row's mask is 0 become impossible."""
    logits, sequences = _logits(), _size("num_seq")
    width = logits.shape[1]
    rows = _list("seq_ids", sequences)
    masks = tirx.decl_buffer((logits.shape[0], _size("num_words")), "int32", name="bitmask")

    def body() -> None:
        with loop(sequences) as number, loop(tirx.ceildiv(width, _WORD), parallel=True) as word:
            row = T.bind(rows[number])
            bits = T.bind(masks[row, word])
            with loop(_WORD) as bit:
                token = T.bind(word * _WORD + T.Cast("int64", bit))
                impossible = tirx.And(token < width, ((bits >> bit) & 1) == 0)
                with T.If(impossible), T.Then():
                    store(logits, T.float32(_LOWEST), row, token)

    return _kernel([logits, rows, masks], body)


def scatter_rows(dtype: str) -> tirx.PrimFunc:
    """(rows (b, n), places (b,), table (m, n)): the rows are put at their places in the table."""
    rows, places, table = _rows(dtype)

    def body() -> None:
        with loop(rows.shape[0], parallel=True) as number, loop(rows.shape[1]) as element:
            store(table, rows[number, element], places[number], element)

    return _kernel([rows, places, table], body)


def gather_rows(dtype: str) -> tirx.PrimFunc:
    """(table (m, n), places (b,), rows (b, n)): the rows become those at the places in the table."""
    rows, places, table = _rows(dtype)

    def body() -> None:
        with loop(rows.shape[0], parallel=True) as number, loop(rows.shape[1]) as element:
            store(rows, table[places[number], element], number, element)

    return _kernel([table, places, rows], body)


def _kernel(parameters: Sequence[Buffer], body: Callable[[], None]) -> tirx.PrimFunc:
    block = s_tir.SBlock(iter_vars=[], reads=[], writes=[], name_hint="root", body=statement(body))
    made = tirx.PrimFunc(list(parameters), s_tir.SBlockRealize([], True, block))
    attributes = {"tirx.is_scheduled": True, "tirx.noalias": True, "s_tir": True, "op_pattern": _OPAQUE}
    return made.with_attrs(attributes)


def _rows(dtype: str) -> tuple[Buffer, Buffer, Buffer]:
    """Rows, their places, and the table."""
    count, width = _size("batch_size"), _size("n")
    rows = tirx.decl_buffer((count, width), dtype, name="rows")
    table = tirx.decl_buffer((_size("m"), width), dtype, name="table")
    return rows, _list("indices", count), table


def _size(name: str) -> tirx.Var:
    return tirx.Var(name, "int64")


def _logits() -> Buffer:
    return tirx.decl_buffer((_size("batch_size"), _size("vocab_size")), "float32", name="logits")


def _list(name: str, count: tirx.Var, dtype: str = "int32") -> Buffer:
    return tirx.decl_buffer((count,), dtype, name=name)
