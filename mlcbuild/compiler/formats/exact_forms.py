"""Which quantization schemes the formats of other engines can say without rounding anything again.

q4f16_1 and its like store integers q of b bits and a float16 scale s for 32 numbers w = (q - m) s, where m is
2^(b-1) - 1. ggml's Q4_0 and Q8_0, and compressed-tensors' `pack-quantized`, have w = (q' - 2^(b-1)) s, so q' = q + 1,
and the same groups and scales. Schemes of ggml's own blocks store what GGUF files do.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.quantization.ggml.scheme import GgmlScheme
from mlcbuild.compiler.quantization.group.scheme import GroupScheme
from mlcbuild.compiler.quantization.scheme import QuantizationScheme, Weight
from mlcbuild.compiler.weights.block_types import BLOCK_TYPES, BlockType
from mlcbuild.errors import StageError

GROUP = 32
_GGML_BLOCKS = {4: "Q4_0", 8: "Q8_0"}
_GGML_NUMBERS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactForm:
    """`block` is the type of ggml for a weight, None where it is not quantized; `dtype` that of other tensors."""

    block: BlockType | None
    dtype: str

    @property
    def ggml_numbers(self) -> str:
        return _GGML_NUMBERS[self.dtype]


def gguf_form(scheme: QuantizationScheme, weight: Weight) -> ExactForm:
    """The form of a weight as a scheme stores it. Raises StageError for a scheme whose numbers GGUF cannot say."""
    check_gguf_scheme(scheme)
    block = None
    if scheme.covers(weight.role):
        if isinstance(scheme, GgmlScheme):
            block = scheme.block_of(weight)
        elif isinstance(scheme, GroupScheme):
            block = BLOCK_TYPES[_GGML_BLOCKS[scheme.bits]]
    return ExactForm(block=block, dtype=scheme.model_dtype)


def check_gguf_scheme(scheme: QuantizationScheme) -> None:
    """Raises StageError for a scheme whose numbers GGUF cannot say."""
    if scheme.kind == "no-quant" or isinstance(scheme, GgmlScheme):
        return
    if isinstance(scheme, GroupScheme):
        fits = scheme.group_size == GROUP and scheme.bits in _GGML_BLOCKS and scheme.model_dtype == "float16"
        if fits:
            return
    raise StageError(
        f"GGUF has no exact form of {scheme.name}: its weights would be rounded again",
        advice=(
            f"it has one of integers of 4 or 8 bits in groups of {GROUP} with float16 scales (q4f16_0, q4f16_1, "
            "q4f16_2, q8f16_1), of its own blocks (q8_0_f16, q6_k_f16, q5_k_f16, q4_k_f16), and of q0f16, q0bf16 and "
            "q0f32",
        ),
    )
