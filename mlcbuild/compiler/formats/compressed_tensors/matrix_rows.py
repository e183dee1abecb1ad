"""What a scheme stores for a matrix, by rows, and the tensors that a checkpoint of compressed-tensors has of such rows.

Whatever its layout in a package, a matrix (…, out, in) is taken apart into arrays (…, out, n), whose rows move with
those of the matrix. The formats: compressors/pack_quantized (integers plus 2^(bits - 1) fill words of 32 bits from the
low end, along the inputs; zero points along the outputs), naive_quantized, and nvfp4 and mxfp4 (two floats of 4 bits in
a byte, the first in the low half; what NVFP4's scales are multiplied by in packages, they are divided by there).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mlcbuild.compiler.formats.compressed_tensors.module_form import FLOAT8, INT8, MXFP4, NVFP4, PACKED, ModuleForm
from mlcbuild.compiler.formats.group_integers import group_integers, offset_integers
from mlcbuild.compiler.models.checkpoints.operations import Shape
from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.quantization.awq.encoder import unpacked as unpacked_awq
from mlcbuild.compiler.quantization.awq.scheme import AwqScheme
from mlcbuild.compiler.quantization.float8.encoder import spread
from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme
from mlcbuild.compiler.quantization.ft.scheme import FtScheme
from mlcbuild.compiler.quantization.group.scheme import GroupScheme
from mlcbuild.compiler.quantization.int8.scheme import Int8Scheme
from mlcbuild.compiler.quantization.mixed.scheme import scheme_of
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.weights.bit_packing import WORD_BITS, packed
from mlcbuild.compiler.weights.tensor import BYTES, Array, Tensor, TensorDescription
from mlcbuild.compiler.weights.tensor import FLOAT8 as E4M3_DTYPE
from mlcbuild.errors import InternalError

_CODES, _SCALES, _ZEROS, _GLOBAL, _INPUT = "codes", "scales", "zeros", "global", "input"


def rows_of(
    scheme: QuantizationScheme, parameter: Parameter, form: ModuleForm, stored: Sequence[Array]
) -> Mapping[str, Array]:
    """The arrays of a parameter (…, out, in) that is stored in a form: codes, scales and what belongs to them."""
    scheme = scheme_of(scheme, parameter)
    match scheme:
        case GroupScheme() | FtScheme():
            groups = scheme.groups_of(parameter) if isinstance(scheme, FtScheme) else scheme
            integers, scales = group_integers(groups, parameter, stored)
            codes, scales = offset_integers(integers, scales, bits=groups.bits)
            return {_CODES: codes[..., : parameter.shape[-1]], _SCALES: scales}
        case AwqScheme():
            codes, zeros = (unpacked_awq(words).astype(np.uint8) for words in stored[:2])
            return {_CODES: codes, _ZEROS: zeros, _SCALES: np.ascontiguousarray(np.swapaxes(stored[2], -1, -2))}
        case Float8Scheme():
            assert scheme.scales is not None  # refused
            *experts, out, _ = parameter.shape
            scales = np.asarray(stored[1])
            if form.scale_rows == 0:
                scales = spread(scales, scheme.scales, parameter.shape)
            elif form.scale_rows > 1:
                scales = np.repeat(scales, form.scale_rows, axis=-2)[..., :out, :]
            found = {_CODES: np.asarray(stored[0]).view(np.uint8), _SCALES: _each_row(scales, (*experts, out))}
            if form.activations is not None and not form.activations.dynamic:
                found[_INPUT] = _each_row(stored[2], (*experts, out))
            return found
        case Int8Scheme():
            *experts, out, _ = parameter.shape
            found = {_CODES: np.asarray(stored[0]).view(np.uint8), _SCALES: np.asarray(stored[1])}
            if form.activations is not None and not form.activations.dynamic:
                found[_INPUT] = _each_row(stored[2], (*experts, out))
            return found
    words, scales, *more = stored
    found = {_CODES: np.ascontiguousarray(words).view(np.uint8), _SCALES: np.asarray(scales).view(np.uint8)}
    if more:
        *experts, out, _ = parameter.shape
        found[_GLOBAL] = _each_row(np.asarray(more[0]).reshape(*(experts or ()), 1, 1), (*experts, out))
    return found


def tensors_of(form: ModuleForm, module: str, shape: Shape) -> list[TensorDescription]:
    """The tensors of a module whose matrix (out, in) is in a form, in the order in which they are written."""
    out, columns = shape
    bits, groups = form.weights.bits, form.groups(columns)

    def one(name: str, dtype: str, *sizes: int) -> TensorDescription:
        return TensorDescription(name=f"{module}.{name}", dtype=dtype, shape=sizes)

    if form.format == PACKED:
        found = [
            one("weight_packed", "int32", out, -(-columns * bits // WORD_BITS)),
            one("weight_scale", form.scale_type, out, groups),
            one("weight_shape", "int64", 2),
        ]
        if not form.weights.symmetric:
            found.append(one("weight_zero_point", "int32", -(-out * bits // WORD_BITS), groups))
        return found
    if form.format in (FLOAT8, INT8):
        scales = (1,) if form.scale_rows == 0 else (-(-out // form.scale_rows), groups)
        found = [
            one("weight", E4M3_DTYPE if form.format == FLOAT8 else "int8", *shape),
            one("weight_scale", "float32", *scales),
        ]
        if form.activations is not None and not form.activations.dynamic:
            found.append(one("input_scale", "float32", 1))
        return found
    found = [one("weight_packed", BYTES, out, columns // 2), one("weight_scale", form.scale_type, out, groups)]
    if form.format == NVFP4:
        found.append(one("weight_global_scale", "float32", 1))
    return found


def written(form: ModuleForm, rows: Mapping[str, Array], described: TensorDescription, shape: Shape) -> Tensor:
    """One of the tensors of `tensors_of`, of the rows of a matrix (out, in)."""
    return Tensor(description=described, data=_array(form, rows, described, shape))


def _array(form: ModuleForm, rows: Mapping[str, Array], described: TensorDescription, shape: Shape) -> Array:
    kind = described.name.rpartition(".")[2]
    bits = form.weights.bits
    match kind:
        case "weight_packed":
            return packed(rows[_CODES], bits).view(np.int32) if form.format == PACKED else rows[_CODES]
        case "weight":
            return rows[_CODES].view(np.int8) if form.format == INT8 else rows[_CODES]
        case "weight_shape":
            return np.array(shape, "<i8")
        case "weight_zero_point":
            zeros = np.ascontiguousarray(rows[_ZEROS].T)
            return np.ascontiguousarray(packed(zeros, bits).T).view(np.int32)
        case "weight_scale":
            scales = rows[_SCALES]
            if form.format in (MXFP4, NVFP4):
                return scales
            if form.format == FLOAT8:
                found = scales[:1, 0] if form.scale_rows == 0 else scales[:: form.scale_rows]
                return np.ascontiguousarray(found)
            return scales.view(np.uint16) if described.dtype == "bfloat16" else scales
        case "weight_global_scale":
            return (np.float32(1) / rows[_GLOBAL][:1, 0]).astype("<f4")
        case "input_scale":
            return np.ascontiguousarray(rows[_INPUT][:1, 0])
    raise InternalError(f"{described.name} is no tensor of {form.format}")


def _each_row(scales: Array, rows: Shape) -> Array:
    """Scales that rows have together, for each of them: (…, out, n)."""
    return np.ascontiguousarray(np.broadcast_to(scales, (*rows, scales.shape[-1])))
