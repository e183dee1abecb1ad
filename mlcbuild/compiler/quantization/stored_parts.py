"""What a scheme stores of the parameters of an imported shard."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlcbuild.compiler.models.checkpoints.operations import Concatenate
from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.quantization.kept_weights import again_advice
from mlcbuild.compiler.quantization.mixed.scheme import scheme_of
from mlcbuild.compiler.quantization.scheme import (
    BlockEncoder,
    Encoder,
    FloatEncoder,
    IntegerEncoder,
    QuantizationScheme,
    RowEncoder,
    StaticScalesEncoder,
    kept_dtype,
)
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.compiler.weights.kept_matrices import (
    has_blocks,
    has_floats,
    has_integers,
    kept_blocks,
    kept_floats,
    kept_integers,
)
from mlcbuild.compiler.weights.operations import carry_out
from mlcbuild.compiler.weights.tensor import Array
from mlcbuild.errors import StageError

_PIECE_ELEMENTS = 1 << 20  # of a matrix that is quantized in pieces


def stored_pieces(
    source: ImportedShard, part: Parameter, scheme: QuantizationScheme, encoder: Encoder, *, only_kept: bool = False
) -> Iterator[tuple[Array, ...]]:
    """What `stored_part` gives, in pieces along the first axis where the encoder takes a matrix so. The memory of a
    piece is used again for the next; that of a whole matrix would have to be got and cleared."""
    if not (isinstance(encoder, RowEncoder) and _is_read_by_rows(source, part) and encoder.has_rows_apart(part)):
        yield stored_part(source, part, scheme, encoder, only_kept=only_kept)
        return
    dtype = kept_dtype(part, scheme.model_dtype)
    step = max(1, _PIECE_ELEMENTS // max(part.shape[1], 1))
    for tensor in part.sources:
        count = tensor.shape[0]
        for begin in range(0, count, step):
            rows = (begin, min(begin + step, count))
            try:
                numbers = source.rows(tensor.name, rows).numbers(dtype)
            except StageError:
                source.read(tensor.name).numbers(dtype)  # which tells the place in the whole tensor
                raise
            yield encoder.encode(part, numbers)


def _is_read_by_rows(source: ImportedShard, part: Parameter) -> bool:
    """Whether a part is a matrix of numbers, and its rows are those of its sources, one after another."""
    one_after_another = part.operations in ((), (Concatenate(axis=0),))
    names = [tensor.name for tensor in part.sources]
    return (
        len(part.shape) == 2
        and one_after_another
        and all(map(source.is_kept_as_numbers, names))
        and source.activation_scales(names) is None
    )


def stored_part(
    source: ImportedShard, part: Parameter, scheme: QuantizationScheme, encoder: Encoder, *, only_kept: bool = False
) -> tuple[Array, ...]:
    """The arrays that are stored for one of a parameter's `parts`: integers, floats of 8 bits and blocks of a quantized
    checkpoint as they are, where the scheme has the same, and else what the encoder makes of the numbers. Static scales
    of activations that the shard has are stored with them, where the scheme has such. Raises StageError where integers
    or floats are `only_kept`, and the scheme that quantizes the parameter has other ones."""
    arrays = _stored_integers(source, part, encoder) or _stored_floats(source, part, encoder)
    if arrays is None and has_blocks(source, part):
        arrays = _stored_blocks(source, part, scheme, encoder)
    if arrays is None and only_kept and scheme_of(scheme, part).covers(part.role):
        _refuse_again(source, part, scheme_of(scheme, part))
    if arrays is None:
        arrays = _encoded(source, part, scheme, encoder)
    return _with_static_scales(source, part, encoder, arrays)


def _refuse_again(source: ImportedShard, part: Parameter, scheme: QuantizationScheme) -> None:
    if has_integers(source, part) or has_floats(source, part):
        held = "integers" if has_integers(source, part) else "floats of 8 bits"
        raise StageError(
            f"{part.name}: the checkpoint's {held} are none that {scheme.name} stores: they would be quantized again",
            advice=(again_advice(), "or choose a quantization that keeps them, or one that begins with q0"),
        )


def _encoded(source: ImportedShard, part: Parameter, scheme: QuantizationScheme, encoder: Encoder) -> tuple[Array, ...]:
    dtype = kept_dtype(part, scheme.model_dtype)
    numbers = [source.read(tensor.name).numbers(dtype) for tensor in part.sources]
    return encoder.encode(part, carry_out(part.operations, numbers))


def _stored_blocks(
    source: ImportedShard, part: Parameter, scheme: QuantizationScheme, encoder: Encoder
) -> tuple[Array, ...] | None:
    """What is stored for a parameter with rows in blocks of a GGUF file: these, where the scheme has blocks of the same
    type, and what the encoder makes of all others. None where no row is kept."""
    kind = encoder.block_kind(part) if isinstance(encoder, BlockEncoder) else None
    kept = None if kind is None else kept_blocks(source, part, kind)
    if kept is None:
        print(f"{part.name}: blocks restored, and quantized again")
        return None
    data = kept.data
    if not kept.are_kept.all():
        (data,) = _encoded(source, part, scheme, encoder)
        data[kept.are_kept] = kept.data[kept.are_kept]
    if not np.isfinite(encoder.decode(part, (data,))).all():
        return None  # what is not finite in the model's type is told by its place
    print(f"{part.name}: {'' if kept.are_kept.all() else 'some '}blocks kept as they are")
    return (data,)


def _stored_integers(source: ImportedShard, part: Parameter, encoder: Encoder) -> tuple[Array, ...] | None:
    """What is stored for a parameter whose integers are kept; None for one that has none, or other ones than the
    scheme."""
    if not has_integers(source, part):
        return None
    stored = None
    if isinstance(encoder, IntegerEncoder) and (joined := kept_integers(source, part)) is not None:
        stored = encoder.store(part, joined)
    print(f"{part.name}: integers {'restored, and quantized again' if stored is None else 'kept as they are'}")
    return stored


def _stored_floats(source: ImportedShard, part: Parameter, encoder: Encoder) -> tuple[Array, ...] | None:
    """What is stored for a parameter whose floats of 8 bits are kept; None for one that has none, or other scales than
    the scheme."""
    if not has_floats(source, part):
        return None
    stored = None
    if isinstance(encoder, FloatEncoder) and (joined := kept_floats(source, part)) is not None and joined.is_finite:
        stored = encoder.store_floats(part, joined)  # what is not finite is told by its place
    print(f"{part.name}: floats {'restored, and quantized again' if stored is None else 'kept as they are'}")
    return stored


def _with_static_scales(
    source: ImportedShard, part: Parameter, encoder: Encoder, stored: tuple[Array, ...]
) -> tuple[Array, ...]:
    """What is stored for a parameter, with the static scales of its activations that the shard has."""
    scales = source.activation_scales([tensor.name for tensor in part.sources])
    if scales is None:
        return stored
    found = encoder.with_static_scales(part, stored, scales) if isinstance(encoder, StaticScalesEncoder) else None
    print(f"{part.name}: static scales of activations {'are not stored' if found is None else 'kept as they are'}")
    return stored if found is None else found
