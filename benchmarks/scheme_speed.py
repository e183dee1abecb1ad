"""How fast a model decodes, and how large it is, by each quantization scheme, against one of them.

    mlcbuild build //models/perplexity:smollm2-135m-q0f32 //models/perplexity:smollm2-135m-q4f16_1 …
    python -m benchmarks.scheme_speed mlcbuild-out/…/smollm2-135m-q0f32 mlcbuild-out/…/smollm2-135m-q4f16_1 …

Method. All are packages of one model for one platform; the first is what the others are compared with. One process
loads all of them, each with the same number of threads, and they take turns, so that all meet the same noise of the
machine, which must be quiet. A turn prefills the same 32 ids, then decodes 64 tokens greedily at batch 1; the first
token belongs to the prefill. A first turn of each is dropped. It prints the bytes of all parameters, and the median of
the tokens per second of turns, with the median, least and greatest ratio of paired turns, as rows of a table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from mlcbuild.runtime.engine import Engine

_PROMPT = [(1000 + 37 * number) % 20000 for number in range(32)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path, nargs="+", help="directories of built packages")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    engines = {path: Engine(path, threads=arguments.threads) for path in arguments.packages}
    rates: dict[Path, list[float]] = {path: [] for path in engines}
    for number in range(arguments.rounds + 1):
        for path, engine in engines.items():
            rate = turn(engine, arguments.new_tokens)
            if number:
                rates[path].append(rate)
                print(f"turn {number}  {path.name:40}  {rate:7.1f} tokens/s", file=sys.stderr, flush=True)
    first = rates[arguments.packages[0]]
    print("| package | bytes | tokens/s | against the first |\n|---|---|---|---|")
    for path, own in rates.items():
        ratios = [one / other for one, other in zip(own, first, strict=True)]
        compared = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {path.name} | {parameter_bytes(path):,} | {statistics.median(own):.1f} | {compared} |")


def turn(engine: Engine, new_tokens: int) -> float:
    """Tokens per second of the tokens behind the first."""
    engine.reset(capacity=len(_PROMPT) + new_tokens)
    token = int(np.argmax(engine.prefill(_PROMPT)))
    begin = time.perf_counter()
    for _ in range(new_tokens - 1):
        token = int(np.argmax(engine.decode(token)))
    return (new_tokens - 1) / (time.perf_counter() - begin)


def parameter_bytes(package: Path) -> int:
    """The bytes of all parameters of a package."""
    index = json.loads((package / "tensor-cache.json").read_text())
    return sum(int(record["nbytes"]) for record in index["records"])


if __name__ == "__main__":
    main()
