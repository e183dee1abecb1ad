"""docs/scheme-grid.md: every family by every scheme, with the largest error seen of the pairs that ran.

`python -m tests.compiler.scheme_grid_page` writes the page of `scheme_grid.json`. With words, such as `llama` or
`llama/int8_int8_f16` or `*/q4f16_1`, it measures these pairs first, and writes them into the file one by one; with
`--missing`, those of them that the file has not.
"""

from __future__ import annotations

import fnmatch
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.compiler import schemes
from tests.compiler.scheme_grid import MODELS, Measured, covering, measure, pairs, read_results, write_results

PAGE = Path(__file__).parents[2] / "docs" / "scheme-grid.md"
_HEAD = """<!-- help: scheme-grid: families by schemes, and the pairs that were measured -->
# Families by schemes

This page is made by `python -m tests.compiler.scheme_grid_page`. For each pair, a small model with random weights is
compiled for this processor, and compared with the float32 library of the same model, whose weights are those that the
stored ones stand for: all tokens of two texts, and tokens after a prompt, one by one. A cell is the largest difference
of logits (of encoders, of hidden states) as a percentage of the largest logit, and in brackets the bound of that token:
what roundings to the scheme's type explain. Where a scheme rounds activations, and in recurrent layers (Mamba 2,
Granite's hybrids, Qwen3-Next and Qwen3.5), some tokens are far more sensitive to roundings than others, and each has a
bound of its own: as much as the float32 library moves when its weights do, by as much as roundings would
(`tests/compiler/moved_weights.py` derives it). In a mixture both libraries use the experts that the quantized one has
chosen, so that all tokens can be compared, and "r3" says that the float32 library would have chosen others three times
(of tokens, layer by layer). LLVM optimizes less than in a build.

Pairs in bold type run in CI: one of each family, with every scheme among them. Those with a small circle were measured
in an earlier way, and are measured in the present one by whoever runs all pairs: of a mixture, and of floats of 8 bits,
the median token counted, and rounded activations had one bound for all tokens.

Rows of these models are shorter than blocks of K-quants: `q4_k_f16`, `q5_k_f16` and `q6_k_f16` store `Q8_0` here, and
`tests/compiler/test_ggml_schemes.py` compares them on wider rows. "–" is a pair that did not run; "no" is a model whose
matrices the scheme cannot store, and says so.

"""


def page(results: Mapping[tuple[str, str], Measured]) -> str:
    """The page of what was measured."""
    listed = list(pairs())
    ran = sum(pair in results for pair in listed)
    above = [pair for pair, found in results.items() if not found.is_within]
    former = sum(found.former for found in results.values())
    in_ci = covering()
    told = f"{ran} of {len(listed)} pairs ran; {len(above)} of them are above their bound"
    told += f": {', '.join('/'.join(pair) for pair in above)}." if above else "."
    if former:
        told += f" {former} have a circle."
    parts = [_HEAD, told, "\n"]
    for dtype in ("float32", "float16", "bfloat16"):
        names = [name for name in schemes.NAMES if schemes.scheme(name).model_dtype == dtype]
        parts.append(f"\n## Schemes in {dtype}\n| model | {' | '.join(f'`{name}`' for name in names)} |\n")
        parts.append(f"|---|{'---|' * len(names)}\n")
        for model in MODELS:
            cells = [_cell(results.get((model, name)), is_in_ci=(model, name) in in_ci) for name in names]
            parts.append(f"| {model} | {' | '.join(cells)} |\n")
    return "".join(parts)


def _cell(found: Measured | None, *, is_in_ci: bool) -> str:
    if found is None:
        return "–"
    if found.cannot:
        return "no"
    rerouted = f" r{found.rerouted}" if found.rerouted else ""
    cell = f"{100 * found.error:.2g} ({100 * found.bound:.2g}){rerouted}{'°' if found.former else ''}"
    return f"**{cell}**" if is_in_ci else cell


def main() -> None:
    results = read_results()
    words = sys.argv[1:]
    missing = "--missing" in words
    asked = [word if "/" in word else f"{word}/*" for word in words if word != "--missing"]
    with tempfile.TemporaryDirectory() as folder:
        kernels = Path(folder) / "kernels"
        for model, scheme in pairs():
            wanted = any(fnmatch.fnmatch(f"{model}/{scheme}", word) for word in asked)
            if not wanted or (missing and (model, scheme) in results):
                continue
            results[model, scheme] = measure(model, scheme, kernel_store=kernels)
            print(model, scheme, results[model, scheme], file=sys.stderr, flush=True)
            write_results(results)
    write_results(results)
    PAGE.write_text(page(read_results()))


if __name__ == "__main__":
    main()
