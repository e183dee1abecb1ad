"""Which quantization schemes the formats of other engines can say without rounding anything again.

q4f16_1 and its like store integers q of b bits and a float16 scale s for 32 numbers w = (q - m) s, where m is
2^(b-1) - 1. ggml's Q4_0 and Q8_0, and compressed-tensors' `pack-quantized`, have w = (q' - 2^(b-1)) s, so q' = q + 1,
and the same groups and scales.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.quantization.group.scheme import GroupScheme
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.errors import StageError

GROUP = 32
_GGML_BLOCKS = {4: "Q4_0", 8: "Q8_0"}
_GGML_NUMBERS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactForm:
    """`bits` of the integers that matrices are made of, 0 where they are not quantized; `dtype` of other tensors."""

    bits: int
    dtype: str

    @property
    def ggml_block(self) -> str:
        """The type of ggml for quantized matrices."""
        return _GGML_BLOCKS[self.bits]

    @property
    def ggml_numbers(self) -> str:
        return _GGML_NUMBERS[self.dtype]


def exact_form(scheme: QuantizationScheme, *, format_name: str) -> ExactForm:
    """The form of a scheme's weights. Raises StageError for one whose numbers the format cannot say."""
    if scheme.kind == "no-quant":
        return ExactForm(bits=0, dtype=scheme.model_dtype)
    if isinstance(scheme, GroupScheme):
        fits = scheme.group_size == GROUP and scheme.bits in _GGML_BLOCKS and scheme.model_dtype == "float16"
        if fits:
            return ExactForm(bits=scheme.bits, dtype=scheme.model_dtype)
    raise StageError(
        f"{format_name} has no exact form of {scheme.name}: its weights would be rounded again",
        advice=(
            f"it has one of integers of 4 or 8 bits in groups of {GROUP} with float16 scales (q4f16_0, q4f16_1, "
            "q4f16_2, q8f16_1), and of q0f16, q0bf16 and q0f32",
        ),
    )
