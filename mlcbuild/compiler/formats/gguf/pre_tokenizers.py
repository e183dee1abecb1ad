"""The name that llama.cpp has for how a byte-level tokenizer cuts text: the inverse of `tokenizer.byte_level`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcbuild.compiler.tokenizer.cuts import CUTS, GPT2_PATTERN
from mlcbuild.errors import StageError


def cut_name(document: Mapping[str, Any], *, where: str) -> str:
    """The first of the names, of a tokenizer.json. Raises StageError for a rule that llama.cpp does not know."""
    pre_tokenizer = document["pre_tokenizer"]
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    patterns, digits, last = list[str](), False, steps[-1]
    known = last["type"] == "ByteLevel" and not last.get("add_prefix_space")
    for number, step in enumerate(steps[:-1]):
        if step["type"] == "Digits" and number == 0 and step.get("individual_digits"):
            digits = True
        elif step["type"] == "Split" and step["behavior"] == "Isolated" and not step.get("invert"):
            pattern = step["pattern"]
            patterns.append(pattern["Regex"] if "Regex" in pattern else pattern["String"])
        else:
            known = False
    if last.get("use_regex", True) and patterns:
        patterns.append(GPT2_PATTERN)
    ignores = document["model"].get("ignore_merges", False)
    for name, cut in CUTS.items():
        if known and (cut.patterns, cut.digits, cut.ignore_merges) == (tuple(patterns), digits, ignores):
            return name
    raise StageError(
        f"{where} cuts text by a rule that llama.cpp has no name for",
        advice=("a model_package takes the tokenizer as it is",),
    )
