"""The part of docs/families.md about GGUF files: how near a library that is built from one comes to llama.cpp."""

from __future__ import annotations

import textwrap

from mlcbuild.rules.families import families
from tests.compiler.family_results import Result
from tests.compiler.gguf_case import GGUFCase
from tests.compiler.gguf_cases import CASES

_WITHOUT = {
    "gptj": "llama.cpp has no such architecture",
    "internlm": "a llama with biases, where somebody has converted one",
    "internlm3": "the architecture of a llama",
    "ministral": "the architecture of a llama",
    "phi_msft": "the architecture of the later Phis",
    "mixtral": "the architecture of a llama",
    "olmo3": "the architecture of an OLMo 2",
    "chatglm": "the architecture of a GLM",
    "roberta": "the architecture of a BERT, whose table of positions begins at the first of a text",
}
"""Why a family has no architecture of its own in GGUF files."""


def _others() -> str:
    """What the page says of families without an architecture of their own."""
    without = [family.name for family in families() if not family.gguf]
    told = [f"`{name}` ({_WITHOUT[name]})" for name in without if name in _WITHOUT]
    unread = [f"`{name}`" for name in without if name not in _WITHOUT]
    text = f"Families without an architecture of their own: {', '.join(told)}."
    return text + (f" Not read from GGUF files: {', '.join(unread)}." if unread else "")


def _excepted() -> str:
    return " ".join(
        f"Logits of `{case.architecture}` are not compared: in llama.cpp, {case.reason}."
        for case in CASES.values()
        if case.reason
    )


def gguf_head() -> str:
    """What stands before the rows."""
    paragraphs = (
        "For each row, a small GGUF file is written with random numbers, and with the metadata that llama.cpp's "
        "converter writes for the architecture. llama.cpp (the wheel `xllamacpp`) loads it, and a library is "
        "built from it. Compared are logits of the passes above, of texts of 37 and of 21 tokens. "
        "Windows are 16 tokens long. llama.cpp computes with keys and values in float32, and without fused attention. "
        "The error is the largest difference, relative to the largest logit. `tests/compiler/gguf_cases.py` has the "
        "files.",
        "Where an error may be larger, llama.cpp rounds: it looks GELU up in a table of float16 numbers. Matrices of "
        "quantized types it would multiply by activations that it rounds to 8 bits. So of their files it has a copy "
        f"with the numbers that they stand for, in float32. {_excepted()}",
        _others(),
    )
    text = "\n\n".join(textwrap.fill(paragraph, width=120, break_on_hyphens=False) for paragraph in paragraphs)
    return (
        f"\n## GGUF files\n\n{text}\n\n"
        "| file | `general.architecture` | `model_type` | matrices | may be | largest error | compared | CI |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )


def compared(result: Result | None) -> str:
    """Two cells of a row: the error, and when it was found with what."""
    return "– | not run" if result is None else f"{result.error:.0e} | {result.day}, {result.against}"


def gguf_row(name: str, case: GGUFCase, result: Result | None) -> str:
    """One row of the table."""
    found = "– | – | – |" if case.bound is None else f"{case.bound:g} | {compared(result)} |"
    kind = f"F32, experts {case.kind}" if "_exps" in case.stored_so else case.kind
    in_ci = "✓" if case.in_ci else ""
    return f"| {name} | `{case.architecture}` | `{case.config['model_type']}` | {kind} | {found} {in_ci} |\n"
