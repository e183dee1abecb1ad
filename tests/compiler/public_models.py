"""Configurations of public models as they were found in public repositories, each with its number of parameters.

`public_models/NAME.json` is a `config.json`, and `public_models/index.json` says where it was seen.
`python -m tests.compiler.public_models` counts the parameters of all by transformers' classes, without memory for them,
and writes the counts into the index.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.compiler.resolving import model_of

_FOLDER = Path(__file__).parent / "public_models"
_INDEX = _FOLDER / "index.json"
_NOT_SIZES = (
    *("architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "quantization_config"),
    *("_attn_implementation", "attn_implementation", "_name_or_path", "_from_model_config"),
)
"""What transformers would look up, or refuse, and no parameter depends on."""


@dataclass(frozen=True, kw_only=True)
class PublicModel:
    """`source` is where the configuration was seen; of one that is `partial`, not all fields were.

    `refused` is a part of what ResolveModel says if it does not take the file (a regular expression), and `without` are
    fields that it takes the file without. `counted_as` are fields in which a class of transformers has parameters of
    the same sizes, where it has none of the model's type; it has `more` parameters than the model. `parameters` is the
    model's number of them, tied ones counted once; None for a model whose class transformers does not have at all.
    """

    name: str
    source: str
    partial: bool = False
    refused: str = ""
    without: tuple[str, ...] = ()
    counted_as: Mapping[str, Any] = field(default_factory=dict)
    more: int = 0
    parameters: int | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The file."""
        document: dict[str, Any] = json.loads((_FOLDER / f"{self.name}.json").read_text())
        return document

    @property
    def accepted(self) -> dict[str, Any]:
        """The file without the fields that it is not taken with."""
        return {name: value for name, value in self.config.items() if name not in self.without}

    @property
    def is_built(self) -> bool:
        """Whether the model is built, from the file or from a copy without some fields."""
        return bool(self.without) or not self.refused


def public_models() -> dict[str, PublicModel]:
    """All, by their names."""
    index = json.loads(_INDEX.read_text())
    return {
        name: PublicModel(name=name, **entry | {"without": tuple(entry.get("without", ()))})
        for name, entry in index.items()
    }


def counted(model: PublicModel) -> int:
    """How many parameters transformers' class has, less those that the model has not."""
    import torch
    import transformers

    document = model.accepted.get("text_config", model.accepted)
    fields = {name: value for name, value in document.items() if name not in _NOT_SIZES} | dict(model.counted_as)
    kind = transformers.AutoConfig.for_model(**fields)
    with torch.device("meta"):
        if model_of(model.accepted).limits.is_encoder:
            built = transformers.AutoModel.from_config(kind, add_pooling_layer=False)
        else:
            built = transformers.AutoModelForCausalLM.from_config(kind)
    return sum(parameter.numel() for parameter in built.parameters()) - model.more


def main() -> None:
    index = json.loads(_INDEX.read_text())
    for name, model in public_models().items():
        if model.is_built:
            index[name]["parameters"] = counted(model)
    _INDEX.write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
