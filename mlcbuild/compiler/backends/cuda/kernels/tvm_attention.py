"""Changes to TVM's attention kernels for GPUs: which keys a query sees, what becomes of scores, what runs behind them.

The kernels are TIR that TVM has scheduled. What is changed is found by its form; another form is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from mlcbuild.compiler.kernels.building import Buffer, Expression
from mlcbuild.errors import InternalError

Sees = Callable[[Expression, Expression], Expression]
"""Whether a query at a position sees a key at a position, which is not behind it."""


Added = Callable[[Expression, Expression], Expression]
"""What is added to a score of a query head, by how far the key is ahead of the query: 0 or less."""


def hide_in_decode(original: tirx.PrimFunc, sees: Sees) -> tirx.PrimFunc:
    """The kernel for one query of each sequence, whose queries see these keys alone."""
    first_keys, positions = original.params[5], original.params[6]
    query = load_of(original.body, positions)
    kept = _FirstKey(first_keys, load_of(original.body, first_keys).indices[0])

    def seen(branch: tirx.IfThenElse) -> tirx.Stmt:
        if not _is_of_decoded_score(branch):
            return branch
        key = kept.value + branch.condition.a
        return _with_condition(branch, tirx.And(branch.condition, sees(query, key)))

    return original.with_body(kept.stored(_exchanged(original, seen, expected=1)))


def hide_in_prefill(
    original: tirx.PrimFunc, sees: Sees, *, starts: Buffer, first_keys: Buffer, positions: Buffer
) -> tirx.PrimFunc:
    """The kernel for several queries of each sequence, whose queries see these keys alone."""

    def seen(branch: tirx.IfThenElse, query: Expression, key: Expression) -> tirx.Stmt:
        return _with_condition(branch, tirx.And(branch.condition, sees(query, key)))

    return _of_pairs(original, seen, starts=starts, first_keys=first_keys, positions=positions)


def add_in_decode(original: tirx.PrimFunc, added: Added) -> tirx.PrimFunc:
    """The kernel for one query of each sequence, with this added to scores, which are in units of log2(e)."""
    queries, first_keys, positions = original.params[0], original.params[5], original.params[6]
    query, head = load_of(original.body, positions), load_of(original.body, queries).indices[1]
    kept = _FirstKey(first_keys, load_of(original.body, first_keys).indices[0])

    def larger(branch: tirx.IfThenElse) -> tirx.Stmt:
        if not _is_of_decoded_score(branch):
            return branch
        score = branch.then_case
        value = score.value + added(head, kept.value + branch.condition.a - query)
        store = tirx.BufferStore(score.buffer, value, score.indices)
        return tirx.IfThenElse(branch.condition, store, branch.else_case)

    return original.with_body(kept.stored(_exchanged(original, larger, expected=1)))


def add_in_prefill(
    original: tirx.PrimFunc, added: Added, *, starts: Buffer, first_keys: Buffer, positions: Buffer
) -> tirx.PrimFunc:
    """The kernel for several queries of each sequence, with this added to scores, which are in units of log2(e)."""
    head = _bound(original, load_of(original.body, original.params[0]).indices[1])

    def larger(branch: tirx.IfThenElse, query: Expression, key: Expression) -> tirx.Stmt:
        def of_score(load: Any) -> Any:
            if _loaded(load) != "S_smem":
                return load
            own = tvm_ffi.structural_map(head, (tirx.Var, lambda each: load.indices[0] if each.name == "i" else each))
            return load + added(own, key - query)

        score = tvm_ffi.structural_map(branch.then_case, (tvm.ir.TensorLoad, of_score))
        return tirx.IfThenElse(branch.condition, score, branch.else_case)

    return _of_pairs(original, larger, starts=starts, first_keys=first_keys, positions=positions)


def _of_pairs(
    original: tirx.PrimFunc,
    change: Callable[[tirx.IfThenElse, Expression, Expression], tirx.Stmt],
    *,
    starts: Buffer,
    first_keys: Buffer,
    positions: Buffer,
) -> tirx.PrimFunc:
    """The kernel for several queries of each sequence with another statement in place of each that has to do with one
    query and one key, if the query sees the key; `change` is given the positions of both."""
    causal = next(parameter for parameter in original.params if str(parameter.name) == "causal")
    kept = _FirstKey(first_keys, load_of(original.body, first_keys).indices[0])

    def changed(branch: tirx.IfThenElse) -> tirx.Stmt:
        if not _names(branch.condition, causal):
            return branch
        # if_then_else(…, …, if_then_else(causal > 0, column < keys - (starts[b + 1] - starts[b]) + row + 1, …))
        limit = branch.condition.args[2].args[1]
        column, row = limit.a, limit.b.a.b
        sequence = limit.b.a.a.b.b.indices[0]
        # Rows behind the last query are computed as well, and go nowhere.
        token = tirx.min(starts[sequence] + row, starts[sequence + 1] - 1)
        return change(branch, positions[token], kept.value + column)

    try:
        body = _exchanged(original, changed, expected=2)
    except AttributeError as error:
        raise _other_form(original) from error
    return original.with_body(kept.stored(body))


def _bound(original: tirx.PrimFunc, variable: Expression) -> Expression:
    """What a variable of the kernel is bound to."""
    found: list[Expression] = []

    def look(bind: tirx.Bind) -> tirx.Bind:
        if bind.var.same_as(variable):
            found.append(bind.value)
        return bind

    tvm_ffi.structural_map(original.body, (tirx.Bind, look))
    if not found:
        raise _other_form(original)
    return found[0]


def with_scale(original: tirx.PrimFunc, change: Callable[[Expression], Expression]) -> tirx.PrimFunc:
    """The kernel with another number in place of its scale, the last parameter."""
    scale = original.params[-1]
    return original.with_body(
        tvm_ffi.structural_map(original.body, (tirx.Var, lambda each: change(each) if each.same_as(scale) else each))
    )


def with_scores(original: tirx.PrimFunc, change: Callable[[Expression], Expression]) -> tirx.PrimFunc:
    """The kernel with other scores, which are in units of log2(e)."""
    changed = 0

    def store(each: tirx.BufferStore) -> tirx.Stmt:
        nonlocal changed
        names = (str(each.buffer.name), _loaded(each.value))
        if names not in (("S_smem", "S_local"), ("S_local", "t0")):
            return each
        changed += 1
        return tirx.BufferStore(each.buffer, change(each.value), each.indices)

    body = tvm_ffi.structural_map(original.body, (tirx.BufferStore, store))
    if changed != 1:
        raise _other_form(original)
    return original.with_body(body)


class _FirstKey:
    """The position of a sequence's first key, which TVM's kernels read where they rotate keys, kept in a register.

    It is stored where the number of keys is: TVM's search for common subexpressions puts what a rotation and a
    condition further down have in common behind its first use.
    """

    def __init__(self, first_keys: Buffer, sequence: Expression) -> None:
        self._load = first_keys[sequence]
        self._register = tirx.decl_buffer((1,), "int32", name="first_key", scope="local")
        self.value = self._register[0]

    def stored(self, body: tirx.Stmt) -> tirx.Stmt:
        def statements(sequence: tirx.SeqStmt) -> tirx.Stmt:
            made: list[tirx.Stmt] = []
            for each in sequence.seq:
                made.append(each)
                if _stores_to(each, "kv_chunk_len"):
                    made += [tirx.AllocBuffer(self._register), tirx.BufferStore(self._register, self._load, [0])]
            return tirx.SeqStmt(made)

        return tvm_ffi.structural_map(body, (tirx.SeqStmt, statements))


def followed_by(function: tirx.PrimFunc, launch: tirx.Stmt) -> tirx.PrimFunc:
    """A kernel that starts another device function behind its own."""
    root = function.body.block
    block = s_tir.SBlock(
        iter_vars=[],
        reads=[],
        writes=[],
        name_hint="root",
        body=tirx.SeqStmt([root.body, launch]),
        alloc_buffers=root.alloc_buffers,
    )
    return function.with_body(s_tir.SBlockRealize([], True, block))


def _with_condition(branch: tirx.IfThenElse, condition: Expression) -> tirx.IfThenElse:
    return tirx.IfThenElse(condition, branch.then_case, branch.else_case)


def _stores_to(body: tirx.Stmt, name: str) -> bool:
    return isinstance(body, tirx.BufferStore) and str(body.buffer.name) == name


def is_load(expression: Any, buffer: Buffer) -> bool:
    return isinstance(expression, tvm.ir.TensorLoad) and expression.source.same_as(buffer)


def load_of(body: tirx.Stmt, buffer: Buffer) -> Expression:
    """The load of a buffer of which a kernel has one element a sequence."""
    found: list[Any] = []

    def look(load: Any) -> Any:
        if is_load(load, buffer):
            found.append(load)
        return load

    tvm_ffi.structural_map(body, (tvm.ir.TensorLoad, look))
    if not found:
        raise InternalError(f"TVM's attention kernel does not read {buffer.name}")
    return found[0]


def _names(expression: Expression, variable: tirx.Var) -> bool:
    found = False

    def look(each: tirx.Var) -> tirx.Var:
        nonlocal found
        found = found or each.same_as(variable)
        return each

    tvm_ffi.structural_map(expression, (tirx.Var, look))
    return found


def _exchanged(original: tirx.PrimFunc, change: Callable[[tirx.IfThenElse], tirx.Stmt], *, expected: int) -> tirx.Stmt:
    """The kernel's body with so many of its conditions changed."""
    changed = 0

    def each(branch: tirx.IfThenElse) -> tirx.Stmt:
        nonlocal changed
        made = change(branch)
        changed += made is not branch
        return made

    body = tvm_ffi.structural_map(original.body, (tirx.IfThenElse, each))
    if changed != expected:
        raise _other_form(original)
    return body


def _is_of_decoded_score(branch: tirx.IfThenElse) -> bool:
    return isinstance(branch.condition, tirx.LT) and _stores_to(branch.then_case, "S_local")


def _loaded(value: Expression) -> str:
    return str(value.source.name) if isinstance(value, tvm.ir.TensorLoad) else ""


def _other_form(original: tirx.PrimFunc) -> InternalError:
    name = original.attrs.get("global_symbol", "")
    return InternalError(f"TVM's kernel {name} has a form that is not known")
