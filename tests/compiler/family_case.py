"""A small model of a family, with its reference in transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.compiler.tiny_models import Array

Tensors = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class FamilyCase:
    """`config` is the `config.json`, `overrides` are a library's. `reference` are the fields of a configuration of
    transformers, where it is another one; `checkpoint` makes the family's tensors of its. `in_ci` says whether CI runs
    it, and not only exhaustive tests."""

    config: Mapping[str, Any]
    reference: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: Callable[[Tensors], Tensors] = dict
    overrides: Mapping[str, int] = field(default_factory=dict)
    in_ci: bool = False

    @property
    def model(self) -> dict[str, Any]:
        """The configuration of the reference."""
        return dict(self.reference or self.config)


SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 512,
}
ALL_HEADS = {"num_key_value_heads": 4}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def case_of(
    model_type: str,
    /,
    *,
    in_ci: bool = False,
    sizes: Mapping[str, Any] = SIZES,
    overrides: Mapping[str, int] | None = None,
    **fields: Any,
) -> FamilyCase:
    config = {**sizes, **SPECIAL, "model_type": model_type, **fields}
    return FamilyCase(config=config, overrides=overrides or {}, in_ci=in_ci)


def of_another(
    reference: str,
    model_type: str,
    /,
    *,
    checkpoint: Callable[[Tensors], Tensors] = dict,
    given: Mapping[str, Any],
    **own: Any,
) -> FamilyCase:
    """A family whose reference is a model of another type; both have the fields `given`, and each its own."""
    fields = {**SIZES, **SPECIAL, **given}
    theirs = own.pop("theirs", {})
    return FamilyCase(
        config={**fields, "model_type": model_type, **own},
        reference={**fields, "model_type": reference, **theirs},
        checkpoint=checkpoint,
    )
