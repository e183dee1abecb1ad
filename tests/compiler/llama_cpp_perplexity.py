"""The perplexity of a GGUF file by llama.cpp, in the windows of `mlcbuild.runtime.perplexity`.

python -m tests.compiler.llama_cpp_perplexity TEXT WINDOW FILE…
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tests.compiler.llama_cpp import LlamaCppModel


def perplexity(path: Path, text: str, *, window: int) -> float:
    """Windows do not overlap, and the first token of each is not scored."""
    model = LlamaCppModel(path)
    try:
        tokens = model.encode(text)
        likelihoods: list[float] = []
        for begin in range(0, len(tokens) - 1, window):
            piece = tokens[begin : begin + window]
            logits = model.logits(piece, context=window)[:-1].astype(np.float64)
            largest = logits.max(axis=1)
            sums = np.log(np.exp(logits - largest[:, None]).sum(axis=1)) + largest
            likelihoods += (logits[np.arange(len(logits)), piece[1:]] - sums).tolist()
        return float(np.exp(-np.mean(likelihoods)))
    finally:
        model.close()


if __name__ == "__main__":
    for file in map(Path, sys.argv[3:]):
        found = perplexity(file, Path(sys.argv[1]).read_text(encoding="utf-8"), window=int(sys.argv[2]))
        print(f"{file.name} {found:.4f}", flush=True)
