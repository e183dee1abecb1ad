"""What a kernel is called with as it is measured, where random tensors of its parameters' sizes would not do.

Attention goes over pages of a cache: which pages are a sequence's, how much of the last is used, and where queries
begin have to fit together. The kernels of all backends have the parameters of TVM's, so this is said once for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx

from mlcbuild.runtime.measuring.candidate_list import RANDOM, Argument, Content


@dataclass(frozen=True, kw_only=True)
class MeasuredInputs:
    """The arguments of a call, and the sizes to measure at: whatever names shapes and contents have."""

    arguments: tuple[Argument, ...]
    sizes: tuple[Mapping[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class Pass:
    """`batch` sequences with so many tokens in the cache, or given side by side, and so many new ones."""

    batch: int
    context: int
    new: int = 1


_PAGE = 16
_PLAIN = (0, 1.0, 10000.0)  # mode, scale and base of rotation: none
DECODED = (Pass(batch=1, context=1024), Pass(batch=1, context=8192), Pass(batch=16, context=1024))
CONTINUED = (Pass(batch=1, context=1024, new=128), Pass(batch=4, context=256, new=32))
PREFILLED = (Pass(batch=1, context=128, new=128), Pass(batch=1, context=512, new=512))


def decode_inputs(func: tirx.PrimFunc, passes: Sequence[Pass] = DECODED) -> MeasuredInputs:
    """One query token of each sequence over the paged cache."""
    queries = func.params[0]
    given = (
        _tensor(queries, "batch"),
        *_paged(func.params[1:5]),
        _integers("batch", "filled", 0),
        _integers("batch", "filled", "last"),
        _tensor(func.params[7], "batch"),
        _tensor(func.params[8], "batch"),
        *_numbers(*_PLAIN, _scale(queries)),
    )
    return MeasuredInputs(arguments=given, sizes=tuple(_sizes(each) for each in passes))


def paged_prefill_inputs(func: tirx.PrimFunc, passes: Sequence[Pass] = CONTINUED) -> MeasuredInputs:
    """New tokens of sequences over what the paged cache holds of the text before them."""
    queries = func.params[0]
    given = (
        _tensor(queries, "tokens"),
        _integers("starts", "steps", "new"),
        *_paged(func.params[2:6]),
        _integers("batch", "filled", 0),
        _integers("tokens", "counted", "context", "new"),
        _tensor(func.params[8], "tokens"),
        _tensor(func.params[9], "tokens"),
        *_numbers(0, *_PLAIN, _scale(queries)),
    )
    return MeasuredInputs(arguments=given, sizes=tuple(_sizes(each) for each in passes))


def ragged_prefill_inputs(func: tirx.PrimFunc, passes: Sequence[Pass] = PREFILLED) -> MeasuredInputs:
    """New tokens of sequences over each other."""
    queries, _, keys, values = func.params[:4]
    given = (
        _tensor(queries, "tokens"),
        _integers("starts", "steps", "new"),
        _tensor(keys, "tokens"),
        _tensor(values, "tokens"),
        _integers("starts", "steps", "new"),
        _integers("tokens", "counted", 0, "new"),
        _integers("batch", "filled", 0),
        _tensor(func.params[7], "tokens"),
        _tensor(func.params[8], "tokens"),
        *_numbers(1, *_PLAIN, _scale(queries)),
    )
    return MeasuredInputs(arguments=given, sizes=tuple(_sizes(each) for each in passes))


def _paged(parameters: Sequence[tirx.Buffer]) -> tuple[Argument, ...]:
    """The pages, where those of each sequence begin in the table, the table, and the tokens in the last pages."""
    pages = parameters[0]
    return (
        _tensor(pages, "pages"),
        _integers("starts", "steps", "pages_each"),
        _integers("pages", "shuffled"),
        _integers("batch", "filled", _PAGE),
    )


def _sizes(one: Pass) -> dict[str, int]:
    each = -(-one.context // _PAGE)
    return {
        "batch": one.batch,
        "starts": one.batch + 1,
        "context": one.context,
        "last": one.context - 1,
        "new": one.new,
        "tokens": one.batch * one.new,
        "pages_each": each,
        "pages": one.batch * each,
    }


def _tensor(parameter: tirx.Buffer, first: str) -> Argument:
    """Random numbers; the first size is known at run time."""
    return Argument(
        shape=(first, *(int(size) for size in parameter.shape[1:])), dtype=str(parameter.dtype), content=RANDOM
    )


def _integers(size: str, kind: str, *parameters: int | str) -> Argument:
    return Argument(shape=(size,), dtype="int32", content=Content(kind=kind, parameters=parameters))


def _numbers(*values: int | float) -> tuple[Argument, ...]:
    return tuple(
        Argument(
            shape=(),
            dtype="int32" if isinstance(value, int) else "float32",
            content=Content(kind="scalar", parameters=(value,)),
        )
        for value in values
    )


def _scale(queries: tirx.Buffer) -> float:
    return float(int(queries.shape[2]) ** -0.5)
