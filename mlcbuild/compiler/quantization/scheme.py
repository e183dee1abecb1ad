"""The quantization schemes by name: how a model's matrices are stored, and in which type the model computes.

Names and meanings are MLC-LLM's (`q4f16_1`: 4 bits, float16, second layout). The module imports nothing
heavy, so that whoever lists the names pays nothing.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from mlcbuild.errors import StageError

_ITEM_BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "uint32": 32}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQuantization:
    """Symmetric integers in groups along the reduction axis, one scale a group.

    A weight (out, in) becomes `q_weight` (out, in / elements_per_word) of `storage_dtype` and `q_scale`
    (out, in / group_size) of the model's dtype: the layout that MLC-LLM calls NK.
    """

    bits: int
    group_size: int  # weights along the reduction axis that share a scale
    storage_dtype: str
    quantize_embedding: bool
    quantize_final_fc: bool  # the language model's head

    def __post_init__(self) -> None:
        if self.storage_dtype != "uint32":
            raise ValueError(f"packed integers are stored as uint32, not {self.storage_dtype!r}")
        if not 2 <= self.bits <= 8:
            raise ValueError(f"integers have 2 to 8 bits, not {self.bits}")
        if self.group_size <= 0 or self.group_size % self.elements_per_word:
            raise ValueError(
                f"a group holds whole words of {self.elements_per_word} integers: {self.group_size} does not"
            )

    @property
    def elements_per_word(self) -> int:
        """Integers in one word of storage; bits left over at its high end are zero."""
        return _ITEM_BITS[self.storage_dtype] // self.bits

    @property
    def words_per_group(self) -> int:
        return self.group_size // self.elements_per_word

    @property
    def max_int(self) -> int:
        """The largest magnitude, and the offset that makes the stored integers unsigned."""
        return (1 << (self.bits - 1)) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationScheme:
    """A named scheme. `model_dtype` is the type of activations, norms, biases and scales; `group` is None
    where matrices are stored in `model_dtype` as they are."""

    name: str
    model_dtype: str
    group: GroupQuantization | None = None

    def __post_init__(self) -> None:
        if self.model_dtype not in ("float16", "bfloat16", "float32"):
            raise ValueError(f"{self.name}: not a type that models compute in: {self.model_dtype!r}")

    @property
    def kind(self) -> str:
        """MLC-LLM's word for the family of schemes."""
        return "no-quant" if self.group is None else "group-quant"


_INT4_GROUP_32 = GroupQuantization(
    bits=4, group_size=32, storage_dtype="uint32", quantize_embedding=True, quantize_final_fc=True
)

SCHEMES: tuple[QuantizationScheme, ...] = (
    QuantizationScheme(name="q0f16", model_dtype="float16"),
    QuantizationScheme(name="q0f32", model_dtype="float32"),
    QuantizationScheme(name="q4f16_1", model_dtype="float16", group=_INT4_GROUP_32),
    QuantizationScheme(name="q4f32_1", model_dtype="float32", group=_INT4_GROUP_32),
)

NAMES: tuple[str, ...] = tuple(scheme.name for scheme in SCHEMES)


def named(name: str) -> QuantizationScheme:
    """The scheme of that name. Raises StageError for another name."""
    for scheme in SCHEMES:
        if scheme.name == name:
            return scheme
    close = difflib.get_close_matches(name, NAMES, n=1)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    raise StageError(f'unknown quantization "{name}"', advice=(f"known: {', '.join(NAMES)}{hint}",))
