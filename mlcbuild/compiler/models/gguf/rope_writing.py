"""The metadata of a GGUF file, and its tensors of factors, from the rotary embedding of a `config.json`: the inverse of
`gguf.rope`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcbuild.compiler.models.architecture.rotary import RotaryEmbedding
from mlcbuild.compiler.models.architecture.rotary_tables import llama3_frequencies, plain_frequencies
from mlcbuild.compiler.models.configuration.layer_types import FULL
from mlcbuild.compiler.models.gguf.rope import LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, Value, WrittenModel
from mlcbuild.errors import StageError


def rope_metadata(
    model: WrittenModel, rotary: RotaryEmbedding, *, head_dim: int, grows: bool = False, log_multiplied: bool = False
) -> GGUFMetadata:
    """What scales the frequencies. `grows`: scores grow with YaRN, by a tenth of `mscale_all_dim`, and with
    `log_multiplied` by it. Raises StageError for a rule that llama.cpp does not compute."""
    fields = _scaling(model.document)
    kind = fields.get("rope_type", fields.get("type", "default"))
    if kind == "default":
        return GGUFMetadata(values={}, factors={})
    if kind == "linear":
        return GGUFMetadata(
            values={"rope.scaling.type": "linear", "rope.scaling.factor": float(fields["factor"])}, factors={}
        )
    if kind == "llama3":
        return GGUFMetadata(values={}, factors={ROPE_FACTORS: _llama3(fields, rotary, head_dim)})
    if kind == "yarn":
        return GGUFMetadata(values=_yarn(model, fields, grows=grows, log_multiplied=log_multiplied), factors={})
    if kind in ("longrope", "su"):
        return _longrope(model, fields, rotary)
    raise StageError(
        f'the model scales rotary embeddings by "{kind}", which no GGUF file says',
        advice=("known are linear, llama3, yarn and longrope",),
    )


def _scaling(document: Mapping[str, object]) -> Mapping[str, Any]:
    """The rule of the layers that see all of the text, where layers have their own."""
    for name in ("rope_scaling", "rope_parameters"):
        value = document.get(name)
        if isinstance(value, dict) and value:
            inner = value.get(FULL)
            return inner if isinstance(inner, dict) else value
    return {}


def _original(model: WrittenModel, fields: Mapping[str, Any]) -> int:
    name = "original_max_position_embeddings"
    found = fields.get(name) or model.document.get(name)
    return int(found) if isinstance(found, int) else model.positions


def _yarn(model: WrittenModel, fields: Mapping[str, Any], *, grows: bool, log_multiplied: bool) -> dict[str, Value]:
    values: dict[str, Value] = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": float(fields["factor"]),
        "rope.scaling.original_context_length": _original(model, fields),
    }
    for name in ("beta_fast", "beta_slow"):
        if fields.get(name) is not None:
            values[f"rope.scaling.yarn_{name}"] = float(fields[name])
    if grows or log_multiplied:
        scale = float(fields.get("mscale_all_dim") or 0.0)
        values["rope.scaling.yarn_log_multiplier"] = scale if log_multiplied else scale / 10
    return values


def _longrope(model: WrittenModel, fields: Mapping[str, Any], rotary: RotaryEmbedding) -> GGUFMetadata:
    assert rotary.table is not None  # of a rotation by two lists of factors
    values: dict[str, Value] = {
        "rope.scaling.type": "longrope",
        "rope.scaling.attn_factor": rotary.table.attention_factor,
        "rope.scaling.original_context_length": _original(model, fields),
    }
    names = {LONG_FACTORS: "long_factor", SHORT_FACTORS: "short_factor"}
    return GGUFMetadata(
        values=values, factors={name: tuple(map(float, fields[field])) for name, field in names.items()}
    )


def _llama3(fields: Mapping[str, Any], rotary: RotaryEmbedding, head_dim: int) -> tuple[float, ...]:
    """What each pair's frequency is divided by."""
    plain = plain_frequencies(rotary.base, head_dim)
    scaled = llama3_frequencies(
        plain,
        factor=float(fields["factor"]),
        low=float(fields["low_freq_factor"]),
        high=float(fields["high_freq_factor"]),
        original=int(fields["original_max_position_embeddings"]),
    )
    return tuple(one / other for one, other in zip(plain, scaled, strict=True))
