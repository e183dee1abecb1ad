"""Rotary position embeddings as values: which elements of a head are turned against each other, and how fast."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mlcbuild.compiler.models.architecture.rotary_tables import (
    RotaryTable,
    dynamic_table,
    llama3_frequencies,
    longrope_table,
    original_positions,
    plain_frequencies,
    yarn_table,
)
from mlcbuild.compiler.models.config import ConfigReader


class RotaryForm(enum.Enum):
    """Which of the n elements of a head that are turned are a pair."""

    HALVES = "halves"  # i and i + n / 2, as Hugging Face has it
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
    """`base` is the base of the frequencies, "theta" in configurations; `scaling` is None where they are plain.

    TVM's KV cache turns whole heads by these. Where it cannot, there is a `table`, by which the model turns queries and
    keys before the cache gets them.
    """

    base: float
    scaling: RopeScaling | None = None
    form: RotaryForm = RotaryForm.HALVES
    table: RotaryTable | None = None

    def __post_init__(self) -> None:
        if self.form is RotaryForm.NEIGHBOURS and self.tvm_scaling != {"rope_type": "gptj"} and self.table is None:
            raise ValueError("neighbours are turned by plain frequencies alone")

    @property
    def in_cache(self) -> bool:
        """Whether the KV cache turns queries and keys."""
        return self.form is not RotaryForm.NONE and self.table is None

    def in_model(self, head_dim: int) -> RotaryEmbedding:
        """The same rotation, of whole heads of a size, done by the model: for a model in which some layers do not
        rotate."""
        if self.table is not None or self.form is RotaryForm.NONE:
            return self
        return replace(self, table=RotaryTable(frequencies=_scaled_frequencies(self.scaling, self.base, head_dim)))

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


def read_rotary(
    reader: ConfigReader,
    *,
    max_position_embeddings: int,
    head_dim: int,
    form: RotaryForm = RotaryForm.HALVES,
    partial: float | None = None,
) -> RotaryEmbedding:
    """The rotary embedding in the fields `rope_theta`, `partial_rotary_factor`, `rope_scaling` and `rope_parameters`,
    read as transformers 5 reads them: `rope_scaling` comes before `rope_parameters`, and what is inside of either
    before what is outside.

    `partial` is the part of a head that is turned if no field says it; None for a model that turns whole heads. Raises
    StageError for a rule that is not computed here.
    """
    inner = _parameters(reader)
    theta = inner if inner is not None and inner.has("rope_theta") else reader
    base = theta.number("rope_theta", low=1.0, high=1e12, default=10000.0)
    holder = inner if inner is not None and inner.has("partial_rotary_factor") else reader
    part = holder.number("partial_rotary_factor", low=0.0, high=1.0, default=1.0 if partial is None else partial)
    if partial is None and part != 1.0:
        raise holder.fail("partial_rotary_factor", f"is {part:g}; whole heads are rotated here: 1")
    rotated = int(head_dim * part)
    if rotated < 2 or rotated % 2:
        raise holder.fail("partial_rotary_factor", f"is {part:g}; {rotated} of {head_dim} elements cannot be turned")
    scaling, table = None, None
    if inner is not None:
        original = original_positions(reader, inner, positions=max_position_embeddings)
        scaling, table = _scaling(
            inner, base=base, rotated=rotated, original=original, positions=max_position_embeddings
        )
    if table is None and (rotated != head_dim or (form is RotaryForm.NEIGHBOURS and scaling is not None)):
        table = RotaryTable(frequencies=_scaled_frequencies(scaling, base, rotated))
    return RotaryEmbedding(base=base, scaling=scaling, form=form, table=table)


def _parameters(reader: ConfigReader) -> ConfigReader | None:
    for name in ("rope_scaling", "rope_parameters"):
        if reader.document.get(name) in (None, {}):
            continue
        inner = reader.table(name)
        by_layers = [key for key, value in inner.document.items() if isinstance(value, Mapping)]
        if by_layers:
            raise reader.fail(name, f'has parameters of their own for "{by_layers[0]}"; here all layers have the same')
        return inner
    return None


def _scaled_frequencies(scaling: RopeScaling | None, base: float, rotated: int) -> tuple[float, ...]:
    plain = plain_frequencies(base, rotated)
    if scaling is None:
        return plain
    if scaling.rope_type == "linear":
        return tuple(frequency / scaling.factor for frequency in plain)
    return llama3_frequencies(
        plain,
        factor=scaling.factor,
        low=scaling.low_freq_factor,
        high=scaling.high_freq_factor,
        original=scaling.original_max_position_embeddings,
    )


def _scaling(
    inner: ConfigReader, *, base: float, rotated: int, original: int, positions: int
) -> tuple[RopeScaling | None, RotaryTable | None]:
    key = "rope_type" if inner.has("rope_type") else "type"  # its name before transformers 4.43
    rope_type = inner.string(key, default="default")
    if rope_type == "default":
        return None, None
    if rope_type == "linear":
        return RopeScaling(rope_type="linear", factor=inner.number("factor", low=1.0, high=1e6)), None
    if rope_type == "llama3":
        low = inner.number("low_freq_factor", low=1e-6, high=1e6)
        high = inner.number("high_freq_factor", low=1e-6, high=1e6)
        if low > high:
            raise inner.fail("high_freq_factor", f'is {high:g}; it has to be at least "low_freq_factor", {low:g}')
        scaling = RopeScaling(
            rope_type="llama3",
            factor=inner.number("factor", low=1.0, high=1e6),
            low_freq_factor=low,
            high_freq_factor=high,
            original_max_position_embeddings=original,
        )
        if low == high:  # TVM would divide by their difference.
            return None, RotaryTable(frequencies=_scaled_frequencies(scaling, base, rotated))
        return scaling, None
    if rope_type in ("yarn", "longrope", "su"):  # "su" is an older name of "longrope"
        make = yarn_table if rope_type == "yarn" else longrope_table
        return None, make(inner, base=base, rotated=rotated, original=original, positions=positions)
    if rope_type == "dynamic":
        return None, dynamic_table(inner, base=base, rotated=rotated, positions=positions)
    known = '"linear", "dynamic", "llama3", "yarn" or "longrope"'
    raise inner.fail(key, f'is "{rope_type}"; RoPE is computed here plain ("default"), {known}')
