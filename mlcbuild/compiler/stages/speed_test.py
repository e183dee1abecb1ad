"""SpeedTest: whether a package reads and writes as many tokens a second as it should, on this machine.

The fastest of several runs counts, because others on a machine only slow it down. A run before them is not counted.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from mlcbuild.compiler.stages.tested_package import failing_as_stage, load
from mlcbuild.runtime.model import Model
from mlcbuild.runtime.test_result import Figure, TestResult
from mlcbuild.runtime.threads import available_cores


def run(
    *,
    package: Path,
    result: Path,
    prefill_tokens: int,
    decode_tokens: int,
    min_prefill: float,
    min_decode: float,
    runs: int,
    threads: int,
) -> None:
    """Floors are tokens a second, 0 for none. `threads` 0 is one for each core.

    Raises StageError below a floor, and for a package that does not run or has no room for so many tokens.
    """
    model = load(package, threads=threads or available_cores(), function="decode")
    # Which tokens they are does not matter to a dense model; a mixture of experts is better served by different ones.
    prompt = [int(token) for token in np.random.default_rng(0).integers(0, model.active_vocab_size, prefill_tokens)]
    with failing_as_stage():
        _once(model, prompt, min(decode_tokens, 2))
        measured = [_once(model, prompt, decode_tokens) for _ in range(runs)]
    prefill = prefill_tokens / min(seconds for seconds, _ in measured)
    decode = decode_tokens / min(seconds for _, seconds in measured)
    shown, passed = [], True
    figures: dict[str, Figure] = {}
    for name, found, least in (("prefill", prefill, min_prefill), ("decode", decode, min_decode)):
        figures[f"{name}_tokens_per_second"] = found
        if least:
            figures[f"min_{name}_tokens_per_second"] = least
            passed = passed and found >= least
        shown.append(f"{name} {found:,.1f} tokens/s" + (f", at least {least:g}" if least else ""))
    figures |= {"prefill_tokens": prefill_tokens, "decode_tokens": decode_tokens, "runs": runs}
    TestResult(test="speed_test", passed=passed, summary=" · ".join(shown), figures=figures).report(result)


def _once(model: Model, prompt: list[int], count: int) -> tuple[float, float]:
    """Seconds of the prefill, and of `count` tokens after it."""
    model.reset(capacity=len(prompt) + count)
    began = time.perf_counter()
    logits = model.prefill(prompt)
    between = time.perf_counter()
    for _ in range(count):
        logits = model.decode(int(np.argmax(logits[: model.active_vocab_size])))
    return between - began, time.perf_counter() - between
