"""Rotary position embeddings as values: which elements of a head are turned against each other, and how fast."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from mlcbuild.compiler.models.config import MAX_CONTEXT, ConfigReader

_COPY = "remove the field from a copy of config.json, and name the copy as the `config` of the model"
_ADVICE: Mapping[str, tuple[str, ...]] = {
    "dynamic": ('"dynamic" changes nothing in texts of up to max_position_embeddings tokens: ' + _COPY,),
    "yarn": (
        "for a model that has it for long texts alone, as Qwen2.5, and up to original_max_position_embeddings tokens: "
        + _COPY,
    ),
    "longrope": ("its factors depend on how long the text is; the kernels here have one set of factors",),
    "su": ('this is an older name of "longrope", whose factors depend on how long the text is',),
}
"""What to do about a kind of scaling that is not computed here."""


class RotaryForm(enum.Enum):
    """Which elements of a head are a pair; a whole head is turned."""

    HALVES = "halves"  # i and i + head_dim / 2, as Hugging Face has it
    NEIGHBOURS = "neighbours"  # 2 i and 2 i + 1, as GPT-J and the original Llama have it
    NONE = "none"  # nothing is turned: positions are learnt, or there are none


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched for longer contexts.

    `linear` divides every position by `factor`. `llama3` divides the low frequencies alone, blending between
    `original_max_position_embeddings / low_freq_factor` and `/ high_freq_factor` (Llama 3.1's rule); the
    last three fields are its own, 0 for `linear`.
    """

    rope_type: str
    factor: float
    low_freq_factor: float = 0.0
    high_freq_factor: float = 0.0
    original_max_position_embeddings: int = 0

    def __post_init__(self) -> None:
        if self.rope_type not in ("linear", "llama3"):
            raise ValueError(f"not a kind of RoPE scaling that is computed here: {self.rope_type!r}")
        if not self.factor >= 1:
            raise ValueError(f"a RoPE scaling factor is at least 1: {self.factor}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryEmbedding:
    """`base` is the base of the frequencies, "theta" in configurations; `scaling` is None where they are plain."""

    base: float
    scaling: RopeScaling | None = None
    form: RotaryForm = RotaryForm.HALVES

    def __post_init__(self) -> None:
        if self.form is RotaryForm.NEIGHBOURS and self.tvm_scaling != {"rope_type": "gptj"}:
            raise ValueError("neighbours are turned by plain frequencies alone")

    @property
    def position_scale(self) -> float:
        """What positions are multiplied by before the rotation."""
        return 1.0 / self.scaling.factor if self.scaling is not None and self.scaling.rope_type == "linear" else 1.0

    @property
    def tvm_scaling(self) -> dict[str, object]:
        """The argument `rope_scaling` of `tvm.relax.frontend.nn.llm`; empty where frequencies are plain."""
        scaling = self.scaling
        if scaling is None or scaling.rope_type == "linear":
            return {"rope_type": "gptj"} if self.form is RotaryForm.NEIGHBOURS else {}
        return {
            "rope_type": scaling.rope_type,
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_position_embeddings,
        }

    @property
    def model_config(self) -> dict[str, object] | None:
        """The field `rope_scaling` of a `model_config` in `mlc-chat-config.json`."""
        if self.scaling is not None and self.scaling.rope_type == "linear":
            return {"rope_type": "linear", "factor": self.scaling.factor}
        return self.tvm_scaling or None


def read_rotary(reader: ConfigReader, *, max_position_embeddings: int) -> RotaryEmbedding:
    """The rotary embedding in the fields `rope_theta`, `rope_scaling` and `rope_parameters`, read as transformers 5
    reads them: `rope_scaling` comes before `rope_parameters`, and a base inside of either before one outside.

    Raises StageError for a rule that is not computed here.
    """
    inner = _parameters(reader)
    theta = inner if inner is not None and inner.has("rope_theta") else reader
    return RotaryEmbedding(
        base=theta.number("rope_theta", low=1.0, high=1e12, default=10000.0),
        scaling=None if inner is None else _scaling(reader, inner, max_position_embeddings),
    )


def _parameters(reader: ConfigReader) -> ConfigReader | None:
    for name in ("rope_scaling", "rope_parameters"):
        if reader.document.get(name) in (None, {}):
            continue
        inner = reader.table(name)
        by_layers = [key for key, value in inner.document.items() if isinstance(value, Mapping)]
        if by_layers:
            raise reader.fail(name, f'has parameters of their own for "{by_layers[0]}"; here all layers have the same')
        rotated = inner.number("partial_rotary_factor", low=0.0, high=1.0, default=1.0)
        if rotated != 1.0:
            raise inner.fail("partial_rotary_factor", f"is {rotated:g}; whole heads are rotated here: 1")
        return inner
    return None


def _scaling(reader: ConfigReader, inner: ConfigReader, positions: int) -> RopeScaling | None:
    key = "rope_type" if inner.has("rope_type") else "type"  # its name before transformers 4.43
    rope_type = inner.string(key, default="default")
    if rope_type == "default":
        return None
    if rope_type == "linear":
        return RopeScaling(rope_type="linear", factor=inner.number("factor", low=1.0, high=1e6))
    if rope_type == "llama3":
        low = inner.number("low_freq_factor", low=1e-6, high=1e6)
        high = inner.number("high_freq_factor", low=1e-6, high=1e6)
        if not low < high:
            raise inner.fail("high_freq_factor", f'is {high:g}; it has to exceed "low_freq_factor", {low:g}')
        # Transformers takes the field outside before the one inside, and the context's length without either.
        original = "original_max_position_embeddings"
        holder = reader if reader.has(original) else inner
        return RopeScaling(
            rope_type="llama3",
            factor=inner.number("factor", low=1.0, high=1e6),
            low_freq_factor=low,
            high_freq_factor=high,
            original_max_position_embeddings=holder.integer(original, low=1, high=MAX_CONTEXT, default=positions),
        )
    raise inner.fail(
        key,
        f'is "{rope_type}"; RoPE is computed here plain ("default"), "linear" or "llama3"',
        advice=_ADVICE.get(rope_type, ()),
    )
