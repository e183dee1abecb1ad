"""Checkpoints of bitsandbytes: 4 bits of NF4 or FP4, whose scales may be quantized too, and 8-bit integers."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.weights.checkpoint_format import CheckpointFormat, refuse_other_fields, refused
from mlcbuild.compiler.weights.held_weights import HeldWeights

# How activations are computed there, which modules are left, and what each tensor says of itself.
_TOLD = (
    *("llm_int8_enable_fp32_cpu_offload", "llm_int8_skip_modules", "llm_int8_threshold", "bnb_4bit_compute_dtype"),
    *("bnb_4bit_use_double_quant", "_load_in_4bit", "_load_in_8bit"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BitsAndBytesConfiguration:
    """`bits` of a weight: 4 or 8."""

    bits: int


def resolve(table: ConfigReader) -> BitsAndBytesConfiguration:
    """Raises StageError for fields that are not known, and for words that are stored as another type than bytes."""
    in_4, in_8 = (table.boolean(name, default=False) for name in ("load_in_4bit", "load_in_8bit"))
    if in_4 == in_8:
        raise refused(table, "load_in_4bit", f"is {str(in_4).lower()}, and so is load_in_8bit; one of them has to be")
    kind = table.string("bnb_4bit_quant_type", default="fp4")
    if kind not in ("nf4", "fp4"):
        raise refused(table, "bnb_4bit_quant_type", f'is "{kind}"; read are nf4 and fp4')
    if table.string("bnb_4bit_quant_storage", default="uint8") != "uint8":
        raise refused(table, "bnb_4bit_quant_storage", "is not uint8")
    table.refuse(llm_int8_has_fp16_weight=False)
    known = ("load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type", "bnb_4bit_quant_storage")
    refuse_other_fields(table, *known, "llm_int8_has_fp16_weight", *_TOLD)
    return BitsAndBytesConfiguration(bits=4 if in_4 else 8)


def held(configuration: BitsAndBytesConfiguration) -> HeldWeights:
    if configuration.bits == 8:
        return HeldWeights(words="signed bytes with a scale a row", integer_bits=8)
    return HeldWeights(words="floats of 4 bits of bitsandbytes")


FORMAT = CheckpointFormat(
    name="bitsandbytes", method="bitsandbytes", configuration=BitsAndBytesConfiguration, resolve=resolve, held=held
)
