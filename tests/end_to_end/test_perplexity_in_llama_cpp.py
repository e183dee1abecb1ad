"""SmolLM2-135M has the perplexity in llama.cpp, as a `gguf_package`, that its package has here, but for rounding.

llama.cpp rounds what quantized matrices are multiplied by to 8 bits, in groups of 32 or 256; what F16 and BF16 matrices
are multiplied by, to these types. A package in bfloat16 has all that it computes rounded to it.
docs/quantization.md has the figures of all schemes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler.llama_cpp_perplexity import perplexity
from tests.end_to_end.kernel_cache import KernelCache
from tests.end_to_end.smollm2_perplexity import TEXT, WINDOW, package_and_other

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

_NUMBERS, _BFLOAT16, _QUANTIZED = 1e-3, 5e-3, 1.5e-2


@pytest.mark.parametrize(
    ("scheme", "bound"),
    [
        *((name, _NUMBERS) for name in ("q0f32", "q0f16")),
        ("q0bf16", _BFLOAT16),
        *((name, _QUANTIZED) for name in ("q8f16_1", "q4f16_0", "q4f16_1", "q4f16_2")),
        *((name, _QUANTIZED) for name in ("q8_0_f16", "q6_k_f16", "q5_k_f16", "q4_k_f16")),
    ],
)
def test_llama_cpp_expects_the_text_as_the_package_does(
    scheme: str, bound: float, tmp_path: Path, kernel_cache: KernelCache
) -> None:
    ours, output = package_and_other(tmp_path, kernel_cache, scheme=scheme, rule="gguf_package")
    (file,) = output.iterdir()
    theirs = perplexity(file, TEXT.read_text(encoding="utf-8"), window=WINDOW)
    assert theirs == pytest.approx(ours, rel=bound)
