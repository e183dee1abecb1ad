"""What a scheme stores of the parameters of an imported shard."""

from __future__ import annotations

from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.quantization.scheme import (
    Encoder,
    FloatEncoder,
    IntegerEncoder,
    QuantizationScheme,
    kept_dtype,
)
from mlcbuild.compiler.weights import scaled_floats
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.compiler.weights.integers import carried_out
from mlcbuild.compiler.weights.operations import carry_out
from mlcbuild.compiler.weights.tensor import Array


def stored_part(
    source: ImportedShard, part: Parameter, scheme: QuantizationScheme, encoder: Encoder
) -> tuple[Array, ...]:
    """The arrays that are stored for one of a parameter's `parts`: integers and floats of 8 bits of a quantized
    checkpoint as they are, where the scheme has the same, and else what the encoder makes of the numbers."""
    arrays = _stored_integers(source, part, encoder) or _stored_floats(source, part, encoder)
    if arrays is None:
        dtype = kept_dtype(part, scheme.model_dtype)
        numbers = [source.read(tensor.name).numbers(dtype) for tensor in part.sources]
        arrays = encoder.encode(part, carry_out(part.operations, numbers))
    return arrays


def _stored_integers(source: ImportedShard, part: Parameter, encoder: Encoder) -> tuple[Array, ...] | None:
    """What is stored for a parameter whose integers are kept; None for one that has none, or other ones than the
    scheme."""
    names = [tensor.name for tensor in part.sources]
    if not all(map(source.has_integers, names)):
        return None
    joined = None
    if isinstance(encoder, IntegerEncoder):
        matrices = [source.integers(name) for name in names]
        joined = carried_out(part.operations, matrices) if part.operations else matrices[0]
    stored = encoder.store(part, joined) if isinstance(encoder, IntegerEncoder) and joined is not None else None
    print(f"{part.name}: integers {'restored, and quantized again' if stored is None else 'kept as they are'}")
    return stored


def _stored_floats(source: ImportedShard, part: Parameter, encoder: Encoder) -> tuple[Array, ...] | None:
    """What is stored for a parameter whose floats of 8 bits are kept; None for one that has none, or other scales than
    the scheme."""
    names = [tensor.name for tensor in part.sources]
    if not all(map(source.has_floats, names)):
        return None
    joined = None
    if isinstance(encoder, FloatEncoder):
        matrices = [source.floats(name) for name in names]
        joined = scaled_floats.carried_out(part.operations, matrices) if part.operations else matrices[0]
    kept = joined is not None and joined.is_finite  # what is not finite is told by its place
    stored = encoder.store_floats(part, joined) if isinstance(encoder, FloatEncoder) and joined and kept else None
    print(f"{part.name}: floats {'restored, and quantized again' if stored is None else 'kept as they are'}")
    return stored
