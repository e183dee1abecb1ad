"""The field `rope_scaling` of a `config.json` from the metadata of a GGUF file, and from its tensors of factors.

As llama.cpp reads it: without a type the scaling is linear, and `rope.scale_linear` is the older name of the factor; a
factor of 0 is none. YaRN's ends of the blend are rounded to whole pairs, as they are in transformers if `truncate` is
left out. LongRoPE's factors are tensors, and Llama 3.1's are one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.numbers import shortest_decimal
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

ROPE_FACTORS = "rope_freqs.weight"
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
# Llama 3.1's constants, and Llama 4's; a file holds only the factors that follow from them.
_LOW, _HIGHS, _ORIGINAL = 1.0, (4.0, 1.0), 8192
_ORIGINAL_LENGTH = "rope.scaling.original_context_length"
_KEYS = {
    "yarn": (
        _ORIGINAL_LENGTH,
        *("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"),
        *("rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_log_multiplier"),
    ),
    "longrope": (_ORIGINAL_LENGTH, "rope.scaling.attn_factor"),
}


def rope_keys(file: GGUFFile, architecture: str) -> tuple[str, ...]:
    """The metadata that the file's kind of scaling reads, by their names without the architecture's, beside those that
    all read."""
    return _KEYS.get(_kind(file, architecture), ())


def rope_scaling(
    file: GGUFFile,
    architecture: str,
    *,
    theta: float,
    rotated: int,
    grows: bool = False,
    log_multiplied: bool = False,
) -> dict[str, object] | None:
    """How the frequencies of the `rotated` elements of a head are scaled; None for plain ones. `grows`: scores grow
    with YaRN, and a file has a tenth of `mscale_all_dim`; `log_multiplied`: it has that itself. Raises StageError for a
    scaling that is not computed here."""
    kind = _kind(file, architecture)
    if kind == "longrope":
        return _longrope(file, architecture, pairs=rotated // 2)
    older = file.number(f"{architecture}.rope.scale_linear", 0.0)
    factor = shortest_decimal(file.number(f"{architecture}.rope.scaling.factor", older))
    if kind == "none" or factor == 0:
        factor = 1.0
    if ROPE_FACTORS in file.tensors:
        if factor != 1.0:
            raise StageError(f"{file.path} scales RoPE both by a factor and by the tensor {ROPE_FACTORS}")
        return _llama3(file, theta=theta, rotated=rotated)
    if factor == 1.0:
        return None
    if kind == "yarn":
        return _yarn(file, architecture, factor, grows=grows, log_multiplied=log_multiplied)
    return {"rope_type": "linear", "factor": factor}


def _kind(file: GGUFFile, architecture: str) -> str:
    """The type of scaling. LongRoPE's factors count without the type, as in llama.cpp."""
    kind = file.string(f"{architecture}.rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise StageError(
            f'{file.path}: RoPE scaling of the type "{kind}" is not supported',
            advice=(
                'known: "none", "linear", "yarn", "longrope", and Llama 3.1\'s factors in the tensor ' + ROPE_FACTORS,
            ),
        )
    return "longrope" if LONG_FACTORS in file.tensors or SHORT_FACTORS in file.tensors else kind


def _original(file: GGUFFile, architecture: str) -> int:
    return file.integer(f"{architecture}.{_ORIGINAL_LENGTH}", file.integer(f"{architecture}.context_length"))


def _yarn(file: GGUFFile, architecture: str, factor: float, *, grows: bool, log_multiplied: bool) -> dict[str, object]:
    def number(name: str, default: float) -> float:
        return shortest_decimal(file.number(f"{architecture}.rope.scaling.{name}", default))

    if not 1 <= factor < math.inf:
        raise StageError(f"{file.path}: {architecture}.rope.scaling.factor is {factor:g}; it has to be 1 or more")
    magnitude = 0.1 * math.log(factor) + 1.0
    multiplier = number("yarn_log_multiplier", 0.0)
    for name, default, allowed in (
        ("yarn_ext_factor", 1.0, (1.0, -1.0)),
        ("yarn_attn_factor", magnitude, (magnitude, 1.0, -1.0)),
        *(() if grows or log_multiplied else (("yarn_log_multiplier", 0.0, (0.0,)),)),
    ):
        if not any(math.isclose(number(name, default), value, rel_tol=1e-5) for value in allowed):
            shown = " or ".join(f"{value:g}" for value in allowed)
            raise StageError(
                f"{file.path} has metadata that change what YaRN computes, and that is not supported",
                advice=(f"{architecture}.rope.scaling.{name} is {number(name, default):g}; it can be {shown}",),
            )
    scales = {"mscale": 1.0, "mscale_all_dim": multiplier} if multiplier else {}
    if grows:
        # A tenth of DeepSeek's scale; its models have the same for rotated elements and for all.
        scale = shortest_decimal(10 * multiplier)
        if scale == 0:
            raise StageError(f"{file.path} has no {architecture}.rope.scaling.yarn_log_multiplier, which scores need")
        scales = dict.fromkeys(("mscale", "mscale_all_dim"), scale)
    return {
        "rope_type": "yarn",
        "factor": factor,
        **scales,
        "beta_fast": number("yarn_beta_fast", 32.0),
        "beta_slow": number("yarn_beta_slow", 1.0),
        "original_max_position_embeddings": _original(file, architecture),
    }


def _longrope(file: GGUFFile, architecture: str, *, pairs: int) -> dict[str, object]:
    """The two lists of factors, of which llama.cpp takes the long ones if the context is longer than the original one,
    and transformers if the text is."""
    factors = {}
    for field, name in (("long_factor", LONG_FACTORS), ("short_factor", SHORT_FACTORS)):
        if name not in file.tensors:
            raise StageError(f"{file.path} lacks the tensor {name}, which LongRoPE needs")
        factors[field] = [shortest_decimal(number) for number in file.float32_numbers(name)]
        if len(factors[field]) != pairs:
            raise StageError(f"{file.path}: the tensor {name} has {len(factors[field])} factors, for {pairs} pairs")
    attention = file.number(f"{architecture}.rope.scaling.attn_factor", 1.0)
    return {
        "rope_type": "longrope",
        **factors,
        "attention_factor": shortest_decimal(attention),
        "original_max_position_embeddings": _original(file, architecture),
    }


def _llama3(file: GGUFFile, *, theta: float, rotated: int) -> dict[str, object]:
    """The rule whose factors, one for each rotated pair, are those in the file."""
    factors = file.float32_numbers(ROPE_FACTORS)
    factor = shortest_decimal(max(factors))
    if not 1 <= theta < math.inf:
        raise StageError(f"{file.path}: the base of rotary embeddings is {theta:g}; it has to be 1 or more")
    for high in _HIGHS:
        expected = _llama3_factors(factor, high=high, theta=theta, rotated=rotated)
        if len(factors) == len(expected) and all(map(_is_close, factors, expected)):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": _LOW,
                "high_freq_factor": high,
                "original_max_position_embeddings": _ORIGINAL,
            }
    raise StageError(
        f"{file.path}: the factors in {ROPE_FACTORS} are not those of Llama 3.1's rule, the only one that is read"
    )


def _llama3_factors(factor: float, *, high: float, theta: float, rotated: int) -> list[float]:
    expected = []
    for pair in range(rotated // 2):
        wavelength = 2 * math.pi * theta ** (2 * pair / rotated)
        if wavelength < _ORIGINAL / high:
            expected.append(1.0)
        elif wavelength > _ORIGINAL / _LOW:
            expected.append(factor)
        else:
            smooth = (_ORIGINAL / wavelength - _LOW) / (high - _LOW)
            expected.append(1 / ((1 - smooth) / factor + smooth))
    return expected


def _is_close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-4)
