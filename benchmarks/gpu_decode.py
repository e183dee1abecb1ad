"""How fast a library decodes on a GPU at batch 1, against the time of reading its weights once a token.

    python -m benchmarks.gpu_decode [--tokens N] [--prompt N] [--bandwidth GB/s] LIBRARY…

Method. The library's weights are random bits (quantized words) and small numbers (everything else), so no checkpoint is
needed. After a prefill and eight decoded tokens, it decodes N tokens one after another and waits for each by reading
its logits, in three rounds. It prints the best and the median round. The bytes read for a token are those of all
weights except the embedding's, of which one row is read, unless the embedding is also the head. `--bandwidth` is the
card's; the default 3350 is that of an H100 with HBM3.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.weights.tensor import dtype_of
from mlcbuild.runtime.bench.random_weights import random_weights
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.model import Model

_WARM_UP = 8
_ROUNDS = 3


def bytes_a_token(parameters: Sequence[ExpectedTensor]) -> int:
    tied = not any("lm_head" in tensor.name for tensor in parameters)
    return sum(
        int(np.prod(tensor.shape, dtype=np.int64)) * dtype_of(tensor.dtype).itemsize
        for tensor in parameters
        if tied or "embed_tokens" not in tensor.name
    )


def measure(library: Path, *, tokens: int, prompt: int) -> dict[str, Any]:
    began = time.perf_counter()
    model = Model(library, random_weights)
    loaded = time.perf_counter() - began
    vocabulary = 1000
    given = [int(token) for token in np.random.default_rng(1).integers(0, vocabulary, prompt)]
    seconds = []
    for _ in range(_ROUNDS):
        model.reset(capacity=prompt + tokens + _WARM_UP)
        began = time.perf_counter()
        logits = model.prefill(given)
        prefill = time.perf_counter() - began
        for token in range(_WARM_UP):
            model.decode(token)
        began = time.perf_counter()
        for token in range(tokens):
            logits = model.decode(token % vocabulary)
        seconds.append((time.perf_counter() - began) / tokens)
    read = bytes_a_token(model.parameters)
    best = min(seconds)
    return {
        "library": library.name,
        "loaded_seconds": round(loaded, 2),
        "finite": bool(np.isfinite(logits).all()),
        "prefill_ms": round(prefill * 1000, 2),
        "milliseconds_a_token": round(best * 1000, 3),
        "median_milliseconds": round(statistics.median(seconds) * 1000, 3),
        "tokens_a_second": round(1 / best, 1),
        "weight_gigabytes": round(read / 1e9, 3),
        "gigabytes_a_second": round(read / best / 1e9, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="+", type=Path)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument(
        "--bandwidth", type=float, default=3350.0, help="of the card, in GB/s; an H100 with HBM3 has 3350"
    )
    arguments = parser.parse_args()
    for library in arguments.libraries:
        told = measure(library, tokens=arguments.tokens, prompt=arguments.prompt)
        told["share_of_bandwidth"] = round(told["gigabytes_a_second"] / arguments.bandwidth, 3)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
