"""docs/families.md: which families of decoders there are, what they are compared with, and how near they come.

`python -m tests.compiler.family_table` writes the page of the results that tests recorded (`family_results.py`), which
takes no time: tests of rows that have no result, or whose code changed, have to run first.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import mlcbuild.compiler.families
from mlcbuild.rules.families import families
from tests.compiler.families import BOUND
from tests.compiler.family_case import FamilyCase
from tests.compiler.family_cases import CASES
from tests.compiler.family_results import SUFFIX, Result, results
from tests.compiler.gguf_cases import CASES as GGUF_CASES
from tests.compiler.gguf_table import compared, gguf_head, gguf_row
from tests.compiler.public_models import public_models
from tests.compiler.windowed_cases import WINDOWED


def _public() -> str:
    """What the page says of the configuration files of public models."""
    models = public_models().values()
    built = [model for model in models if model.is_built]
    named = [model.name + ("*" if model.partial else "") for model in built]
    refused = ", ".join(model.name for model in models if not model.is_built)
    told = f"Refused, with the reason: {refused}. " if refused else ""
    cut = ", ".join(model.name for model in built if model.without)
    copies = f"Of {cut}, only a copy without one field is read, as the message says. " if cut else ""
    return textwrap.fill(
        f"Configuration files of {len(models)} public models are in `tests/compiler/public_models`, with a note of "
        f"where in public repositories each was seen. {len(built)} are built, and have as many parameters as in "
        f"transformers' classes (`tests/compiler/test_public_models.py`): {', '.join(named)}. Of those with a star, "
        f"not all fields were found. {copies}{told}No file of EXAONE 4 1.2B, GLM-4-0414 or Ministral 8B was found "
        "whole.",
        width=120,
        break_on_hyphens=False,
    ).replace("*", "\\*")


HEAD = f"""<!-- help: families: model families, and how near each comes to transformers -->
# Families of models

For each row, a small model with random weights is saved by transformers, read from its `config.json` and
`model.safetensors`, and compiled for this processor's instructions in float32. Its logits are compared with those of
transformers: of a prompt, of a prompt in pieces, of prompts of unequal lengths in one batch, and token by token. The
error is the largest difference, relative to the largest logit, and may be {BOUND:g}. Of encoders (`bert`, `roberta`,
`xlm-roberta`) hidden states of texts of unequal lengths are compared. `tests/compiler/family_cases.py` has the models,
those with windows are in `windowed_cases.py` beside it. If transformers has no class of a family, the reference is a
model that computes the same, whose tensors are saved with the family's names beside the family's `config.json`.

Figures are what tests recorded on the day that a row names, with the release that it names. A row that was not run
since its model changed says so. Those with a ✓ run in CI each time, the others with `pytest -m exhaustive`. With the
variable `MLCBUILD_RECORD_RESULTS=1`, `tests/compiler/test_families.py` and `test_family_gguf.py` record what they find,
and `python -m tests.compiler.family_table` writes this page of it.

Sliding-window models, the rows from `gemma2` on, are compared with texts that are longer than the windows;
`tests/compiler/test_layer_windows.py` compares them in more ways.

{_public()}

Lines are those of the family's folder; everything else is shared ([models](models.md#to-add-a-family)).

| model | `model_type` | GGUF | reference | largest error | compared | CI | lines |
|---|---|---|---|---|---|---|---|
"""


PAGE = Path(__file__).parents[2] / "docs" / "families.md"


def row(name: str, case: FamilyCase, result: Result | None) -> str:
    """One row of the table."""
    model_type = case.config["model_type"]
    family = next(family for family in families() if model_type in family.model_types)
    folder = Path(mlcbuild.compiler.families.__path__[0]) / family.name
    lines = sum(len(file.read_text().splitlines()) for file in folder.glob("*.py"))
    reference = case.model["model_type"]
    gguf = ", ".join(f"`{each}`" for each in family.gguf) or "–"
    shown = "itself" if reference == model_type else f"`{reference}`"
    in_ci = "✓" if case.in_ci else ""
    return f"| {name} | `{model_type}` | {gguf} | {shown} | {compared(result)} | {in_ci} | {lines} |\n"


def table() -> str:
    """The page."""
    models, files = CASES | WINDOWED, {f"{name}{SUFFIX}": case for name, case in GGUF_CASES.items()}
    found = results()
    rows = [row(name, case, found.get(name)) for name, case in models.items()]
    of_files = [gguf_row(name, case, found.get(name)) for name, case in files.items()]
    return "".join([HEAD, *rows, gguf_head(), *of_files])


if __name__ == "__main__":
    PAGE.write_text(table())
