"""The recurrence of layers that keep a matrix of fixed size for a sequence, whatever the length of its text.

A head has a state S (rows, columns). Token by token, for each head h and row p of its state, with the key k, the query
q (columns) and the value v of the token:

    S[p] = decay S[p];  d = rate (v[p] - S[p]·k  by the delta rule, else  v[p]);  S[p] += d k;  y[p] = S[p]·q

Mamba 2's selective scan is this without the delta rule, where the rate is Δ, the decay e^(ΔA), the key B and the query
C (Dao and Gu, "Transformers are SSMs", 2024); the gated delta rule is this with it (Yang, Kautz and Hatamizadeh, "Gated
Delta Networks", 2024). Rows of the state know nothing of each other, so a backend computes as many as it likes at a
time. A kernel carries its `StateScan` as an attribute, by which backends know it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import s_tir, tirx

from mlcbuild.compiler.kernel_attributes import STATE_SCAN
from mlcbuild.compiler.kernels.building import Buffer, Expression, float32, loop, statement, store

_OPAQUE = 8  # TVM's number of kernels that fusion leaves alone


@dataclass(frozen=True, slots=True, kw_only=True)
class StateScan:
    """Each of `heads` has a state (rows, columns). Values, keys and queries lie beside each other in a row a token, of
    `channels` numbers of `dtype`: those of heads from `value_at` on, and those that heads share, of as many `groups`,
    from `key_at` and `query_at` on."""

    heads: int
    rows: int
    groups: int
    columns: int
    value_at: int
    key_at: int
    query_at: int
    channels: int
    delta: bool
    dtype: str

    def __post_init__(self) -> None:
        if self.heads % self.groups:
            raise ValueError(f"{self.heads} heads share keys in {self.groups} groups")

    @property
    def state_size(self) -> int:
        """Numbers of a sequence's state."""
        return self.heads * self.rows * self.columns

    def key(self, head: Expression) -> Expression:
        """Where the key of a head begins."""
        return self.key_at + head // (self.heads // self.groups) * self.columns

    def query(self, head: Expression) -> Expression:
        """Where the query of a head begins."""
        return self.query_at + head // (self.heads // self.groups) * self.columns

    def value(self, head: Expression, row: Expression) -> Expression:
        """Where the value for a row of a head's state is."""
        return self.value_at + head * self.rows + row

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))


def scan_of(func: tirx.PrimFunc) -> StateScan | None:
    """What a kernel computes, if it is one of `scan_kernel`."""
    if func.attrs is None or STATE_SCAN not in func.attrs:
        return None
    return StateScan(**json.loads(str(func.attrs[STATE_SCAN])))


def scan_kernel(scan: StateScan) -> tirx.PrimFunc:
    """(packed (tokens, channels), decay and rate (tokens, heads) float32, states (sequences, state_size) float32,
    begins and ends (sequences,) int32) → (y (tokens, heads * rows), states behind the last tokens), float32.

    The tokens of sequence b are those from begins[b] to ends[b] - 1.
    """
    tokens, sequences = tirx.Var("tokens", "int64"), tirx.Var("sequences", "int64")
    packed = tirx.decl_buffer((tokens, scan.channels), scan.dtype, name="packed")
    decay = tirx.decl_buffer((tokens, scan.heads), "float32", name="decay")
    rate = tirx.decl_buffer((tokens, scan.heads), "float32", name="rate")
    states = tirx.decl_buffer((sequences, scan.state_size), "float32", name="states")
    begins, ends = (tirx.decl_buffer((sequences,), "int32", name=name) for name in ("begins", "ends"))
    y = tirx.decl_buffer((tokens, scan.heads * scan.rows), "float32", name="y")
    made = tirx.decl_buffer((sequences, scan.state_size), "float32", name="states_out")

    def body() -> None:
        with loop(sequences) as sequence:
            with loop(scan.state_size) as place:
                store(made, states[sequence, place], sequence, place)
            begin = T.bind(T.Cast("int64", begins[sequence]))
            end = T.bind(T.Cast("int64", ends[sequence]))
            with loop(end - begin) as step, loop(scan.heads) as head, loop(scan.rows) as row:
                token = begin + step
                first = (head * scan.rows + row) * scan.columns
                total = T.alloc_buffer((1,), "float32")

                def sum_with(at: Expression, factor: Expression) -> None:
                    store(total, T.float32(0), 0)
                    with loop(scan.columns) as column:
                        own = made[sequence, first + column] * factor
                        store(total, total[0] + own * float32(packed[token, at + column], 1), 0)

                sum_with(scan.key(head), decay[token, head])
                value = float32(packed[token, scan.value(head, row)], 1)
                difference = T.bind(rate[token, head] * (value - total[0] if scan.delta else value))
                with loop(scan.columns) as column:
                    key = float32(packed[token, scan.key(head) + column], 1)
                    own = made[sequence, first + column] * decay[token, head] + difference * key
                    store(made, own, sequence, first + column)
                sum_with(scan.query(head), T.float32(1))
                store(y, total[0], token, head * scan.rows + row)

    return _function([packed, decay, rate, states, begins, ends, y, made], scan, statement(body))


def _function(parameters: list[Buffer], scan: StateScan, body: tirx.Stmt) -> tirx.PrimFunc:
    block = s_tir.SBlock(iter_vars=[], reads=[], writes=[], name_hint="root", body=body)
    made = tirx.PrimFunc(parameters, s_tir.SBlockRealize([], True, block))
    return made.with_attrs({"tirx.noalias": True, "s_tir": True, "op_pattern": _OPAQUE, STATE_SCAN: scan.to_json()})
