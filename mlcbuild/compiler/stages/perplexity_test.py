"""PerplexityTest: whether the perplexity of a package on a text is at most a bound; how it is measured says
`runtime.perplexity`. `max_perplexity` 0: it is measured, and the test passes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlcbuild.compiler.stages.tested_package import failing_as_stage, load, threads_of
from mlcbuild.errors import StageError
from mlcbuild.runtime.perplexity import measure_perplexity
from mlcbuild.runtime.test_result import Figure, TestResult
from mlcbuild.runtime.tokenizer import PackageTokenizer

_LINES = 10  # of progress in the log
_DEFAULT_WINDOW = 512  # tokens; what fits the context where that is less


def run(
    *,
    package: Path,
    text: Path,
    result: Path,
    max_perplexity: float,
    window: int,
    stride: int,
    max_tokens: int,
    hints: Mapping[str, Any] | None = None,
) -> None:
    """`window` 0 is 512 tokens, or the whole context where that is shorter; `stride` 0 is the window; `max_tokens` 0 is
    the whole text. Raises StageError above the bound, for a text of fewer than two tokens or one that is not UTF-8, and
    for a package that does not run."""
    try:
        content = text.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise StageError(f"{text.name} is not UTF-8 text: byte {error.start}") from error
    if not content.strip():
        raise StageError(f"{text.name} is empty: perplexity takes a text")
    model = load(package, threads=threads_of(hints), function="batch_verify")
    with failing_as_stage():
        tokens = PackageTokenizer(model.package).encode_raw(content)
        bounded = model.cache_sizes.is_bounded
        wide = window or (min(_DEFAULT_WINDOW, model.context_window_size) if bounded else _DEFAULT_WINDOW)
        found = measure_perplexity(
            model,
            tokens[:max_tokens] if max_tokens else tokens,
            window=wide,
            stride=stride or wide,
            done=_tell,
        )
    perplexity = found.perplexity
    figures: dict[str, Figure] = {
        "perplexity": perplexity,
        "negative_log_likelihood": found.negative_log_likelihood,
        "tokens": found.tokens,
        "scored": found.scored,
        "windows": found.windows,
        "window": wide,
        "stride": stride or wide,
    }
    if max_perplexity:
        figures["max_perplexity"] = max_perplexity
    bound = f", at most {max_perplexity:g}" if max_perplexity else ""
    TestResult(
        test="perplexity_test",
        passed=math.isfinite(perplexity) and (not max_perplexity or perplexity <= max_perplexity),
        summary=f"perplexity {perplexity:.4f}{bound}",
        figures=figures,
    ).report(result)


def _tell(done: int, total: int) -> None:
    """A line for a tenth of the windows, in the log of a test that takes long."""
    if done * _LINES // total > (done - 1) * _LINES // total:
        print(f"window {done} of {total}", flush=True)
