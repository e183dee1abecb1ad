"""How compressed-tensors says the matrix of a module, without rounding again what a scheme stores for it.

Fields are those of `QuantizationArgs` and `QuantizationScheme` (compressed_tensors/quantization/quant_args.py and
quant_scheme.py), formats those of compressed_tensors/compressors. Neither NumPy nor tvm is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.awq.scheme import BITS as AWQ_BITS
from mlcbuild.compiler.quantization.awq.scheme import AwqScheme
from mlcbuild.compiler.quantization.float4.scheme import Float4Scheme
from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme
from mlcbuild.compiler.quantization.ft.scheme import FtScheme
from mlcbuild.compiler.quantization.group.scheme import GroupScheme
from mlcbuild.compiler.quantization.int8.scheme import Int8Scheme
from mlcbuild.compiler.quantization.minifloat import E4M3
from mlcbuild.compiler.quantization.mixed.scheme import scheme_of
from mlcbuild.compiler.quantization.scheme import QuantizationScheme, Weight
from mlcbuild.errors import StageError

PACKED, FLOAT8, MXFP4, NVFP4 = "pack-quantized", "float-quantized", "mxfp4-pack-quantized", "nvfp4-pack-quantized"
INT8 = "int-quantized"
# Heads and embeddings are no module of the class Linear to vLLM, and are restored.
_QUANTIZED = (ParameterRole.LINEAR, ParameterRole.EXPERTS)
_BITS = (4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """How weights, or activations, are quantized. `block` are rows and columns."""

    bits: int
    type: str
    strategy: str
    symmetric: bool = True
    group_size: int | None = None
    block: tuple[int, int] | None = None
    dynamic: bool = False
    scale_dtype: str | None = None

    def document(self) -> dict[str, object]:
        """The object of a `quantization_config`."""
        found: dict[str, object] = {
            "num_bits": self.bits,
            "type": self.type,
            "symmetric": self.symmetric,
            "strategy": self.strategy,
            "group_size": self.group_size,
            "dynamic": self.dynamic,
        }
        if self.block is not None:
            found["block_structure"] = list(self.block)
        if self.scale_dtype is not None:
            found |= {"scale_dtype": self.scale_dtype, "zp_dtype": self.scale_dtype}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleForm:
    """One of the groups of modules of a `quantization_config`. `scale_rows` are the rows that have a scale together, 0
    for all; `scale_type` is the type of the scales in the file."""

    format: str
    weights: Arguments
    scale_type: str
    activations: Arguments | None = None
    scale_rows: int = 1

    @property
    def divides(self) -> int:
        """What a matrix needs its columns to be a multiple of."""
        return self.weights.group_size or 1

    def groups(self, columns: int) -> int:
        """Scales of a row."""
        width = self.weights.block[1] if self.weights.block else self.weights.group_size
        return -(-columns // width) if width else 1


def check_scheme(scheme: QuantizationScheme) -> None:
    """Raises StageError for a scheme whose numbers compressed-tensors cannot say."""
    why = _refused(scheme)
    if why:
        raise StageError(
            f"compressed-tensors has no exact form of {scheme.name}: {why}",
            advice=(
                "it has one of integers of 4 and 8 bits (q4f16_1, q8f16_1, q4f16_autoawq, q4f16_ft and their like), of "
                "E4M3 with scales, of MXFP4 and NVFP4, of int8_int8_f16, and of q0f16, q0bf16 and q0f32",
            ),
        )


def form_of(scheme: QuantizationScheme, weight: Weight, *, static: bool = False) -> ModuleForm | None:
    """The form of what a scheme stores for a weight; None for one that is written in the model's type. `static`: scales
    of activations are stored for it. Raises StageError for what compressed-tensors cannot say."""
    scheme = scheme_of(scheme, weight)
    check_scheme(scheme)
    if weight.role not in _QUANTIZED or not scheme.covers(weight.role):
        return None
    match scheme:
        case FtScheme():
            form = _integers(scheme.groups_of(weight))
            if not scheme.has_row_scales(weight):
                return form
            return replace(form, weights=replace(form.weights, strategy="channel", group_size=None))
        case GroupScheme():
            return _integers(scheme)
        case AwqScheme():
            weights = Arguments(
                bits=AWQ_BITS, type="int", strategy="group", group_size=scheme.group_size, symmetric=False
            )
            return ModuleForm(format=PACKED, weights=weights, scale_type=scheme.model_dtype)
        case Float8Scheme():
            return _float8(scheme, weight, static=static)
        case Float4Scheme():
            return _float4(scheme)
        case Int8Scheme():
            return _int8(static=static)
    return None


def _refused(scheme: QuantizationScheme) -> str:
    match scheme:
        case GroupScheme() if scheme.bits not in _BITS:
            return f"its versions pack integers of {scheme.bits} bits in different ways"
        case Float8Scheme() if scheme.format != E4M3:
            return "its floats of 8 bits are E4M3"
        case Float8Scheme() if scheme.scales is None:
            return "its floats of 8 bits have scales"
        case GroupScheme() | FtScheme() | AwqScheme() | Float8Scheme() | Float4Scheme() | Int8Scheme():
            return ""
    return "" if scheme.kind == "no-quant" else "its weights would be rounded again"


def _integers(scheme: GroupScheme) -> ModuleForm:
    weights = Arguments(bits=scheme.bits, type="int", strategy="group", group_size=scheme.group_size)
    return ModuleForm(format=PACKED, weights=weights, scale_type=scheme.model_dtype)


def _float8(scheme: Float8Scheme, weight: Weight, *, static: bool) -> ModuleForm:
    scales, rounded = scheme.scales, scheme.activations
    assert scales is not None  # refused
    plain = Arguments(bits=E4M3.bits, type="float", strategy="tensor")
    weights = plain
    if scales.rows == 1 and not scales.columns:
        weights = replace(plain, strategy="channel")
    elif scales.rows and scales.columns:
        weights = replace(plain, strategy="block", block=(scales.rows, scales.columns))
    activations = replace(plain, strategy="token", dynamic=True)
    if rounded is not None and rounded.group:
        activations = replace(activations, strategy="group", group_size=rounded.group)
    if static:
        if activations.group_size is not None:
            raise StageError(
                f"compressed-tensors has no scales of activations for each {activations.group_size} places that are "
                f"stored, and {weight.name} has them",
                advice=("without calibration they are found for each token",),
            )
        activations = replace(plain)
    return ModuleForm(
        format=FLOAT8, weights=weights, scale_type="float32", activations=activations, scale_rows=scales.rows
    )


def _int8(*, static: bool) -> ModuleForm:
    whole = Arguments(bits=8, type="int", strategy="tensor")
    activations = whole if static else replace(whole, strategy="token", dynamic=True)
    weights = replace(whole, strategy="channel")
    return ModuleForm(format=INT8, weights=weights, scale_type="float32", activations=activations)


def _float4(scheme: Float4Scheme) -> ModuleForm:
    weights = Arguments(bits=4, type="float", strategy="group", group_size=scheme.group_size)
    if scheme.has_global_scale:
        weights = replace(weights, strategy="tensor_group", scale_dtype=f"torch.{E4M3.dtype}")
        return ModuleForm(format=NVFP4, weights=weights, scale_type=E4M3.dtype, scale_rows=1)
    return ModuleForm(format=MXFP4, weights=replace(weights, scale_dtype="torch.uint8"), scale_type="uint8")
