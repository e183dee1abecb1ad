"""docs/families.md: which families of decoders there are, what they are compared with, and how near they come.

`python -m tests.compiler.family_table` compiles a small model of each, which takes minutes, and writes the page. With
names of models, it compiles only these, and the errors of the others stay as the page has them.
"""

from __future__ import annotations

import re
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path

import mlcbuild.compiler.families
from mlcbuild.rules.families import families
from tests.compiler.families import BOUND, largest_error
from tests.compiler.family_cases import CASES, WINDOWED, FamilyCase
from tests.compiler.gguf_cases import CASES as GGUF_CASES
from tests.compiler.gguf_parity import largest_error as error_of_file
from tests.compiler.gguf_table import SUFFIX, gguf_head, gguf_row
from tests.compiler.public_models import public_models


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

This page is made by `python -m tests.compiler.family_table`. For each row, a small model with random weights is
compiled for this processor's instructions in float32, and its logits are compared with those of transformers 5.24: of a
prompt, of a prompt in pieces, of prompts of unequal lengths in one batch, and token by token. The error is the largest
difference, relative to the largest logit, and may be {BOUND:g}. Of encoders (`bert`, `roberta`, `xlm-roberta`) hidden
states of texts of unequal lengths are compared. `tests/compiler/family_cases.py` has the models. If
transformers has no class of a family, the reference is a model that computes the same, and whose tensors are given the
family's names.

Sliding-window models, the rows from `gemma2` on, are compared with texts that are longer than the windows;
`tests/compiler/test_layer_windows.py` compares them in more ways.

{_public()}

Lines are those of the family's folder; everything else is shared ([models](models.md#to-add-a-family)).

| model | `model_type` | GGUF | reference | largest error | lines |
|---|---|---|---|---|---|
"""


PAGE = Path(__file__).parents[2] / "docs" / "families.md"


def row(name: str, case: FamilyCase, error: float | None) -> str:
    """One row of the table; an error of None is one that a test found below the bound, and did not write down."""
    model_type = case.config["model_type"]
    family = next(family for family in families() if model_type in family.model_types)
    folder = Path(mlcbuild.compiler.families.__path__[0]) / family.name
    lines = sum(len(file.read_text().splitlines()) for file in folder.glob("*.py"))
    reference = case.model["model_type"]
    gguf = ", ".join(f"`{each}`" for each in family.gguf) or "–"
    shown = "itself" if reference == model_type else f"`{reference}`"
    found = f"below {BOUND:.0e}" if error is None else f"{error:.0e}"
    return f"| {name} | `{model_type}` | {gguf} | {shown} | {found} | {lines} |\n"


def table(errors: Mapping[str, float]) -> str:
    """The page, with the errors of cases by their names; those of GGUF files end with `.gguf`."""
    rows = [row(name, case, errors.get(name)) for name, case in (CASES | WINDOWED).items()]
    files = [gguf_row(name, case, errors.get(f"{name}{SUFFIX}")) for name, case in GGUF_CASES.items()]
    return "".join([HEAD, *rows, gguf_head(), *files])


def _errors_of_page() -> dict[str, float]:
    cells = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ") and "`" in line]
    return {cell[1].strip(): float(cell[5]) for cell in cells if re.fullmatch(r" [0-9.e-]+ ", cell[5])}


def main() -> None:
    cases, files = (
        CASES | WINDOWED,
        {f"{name}{SUFFIX}": case for name, case in GGUF_CASES.items() if case.bound is not None},
    )
    asked = sys.argv[1:]
    errors = _errors_of_page() if asked else {}
    with tempfile.TemporaryDirectory() as folder:
        kernels = Path(folder) / "kernels"
        for name in asked or [*cases, *files]:
            print(name, file=sys.stderr)
            if name in files:
                errors[name] = error_of_file(files[name], Path(folder) / name, kernel_store=kernels)
            else:
                errors[name] = largest_error(cases[name], Path(folder) / name, kernel_store=kernels)
    PAGE.write_text(table(errors))


if __name__ == "__main__":
    main()
