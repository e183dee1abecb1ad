"""Compiled models against transformers, with the same numbers for weights.

The reference runs in float32 on weights as the scheme stores them (for quantized schemes: restored from the integers
and scales). So what is left are roundings. Every tensor that is handed from one kernel to the next is rounded once, to
within u of its value (u = 2^-11 for float16, 2^-8 for bfloat16); there are `ROUNDINGS_A_LAYER` of them in a layer and
two more before the logits, and each moves the logits by at most u times the largest. In float32 (u = 2^-24) the sums
matter: roundings in a sum of k products add like a random walk, to sqrt(k) u.

Where a scheme rounds activations to floats of 8 bits, to within v of their value, or to signed bytes, to within
1/254 of a row's largest, the reference does as well. (Of a row of n numbers, the largest is at most sqrt(n) times the
root of their mean square, so v is sqrt(n) / 254 there.) But a
number that is off by however little may be rounded to the neighbour, and what that moves moves more of them behind the
next product. So two computations that are both right differ in their roundings of activations, which are independent:
those of n products add like a random walk, to sqrt(n) v. There are `PRODUCTS_A_LAYER`. (Where results of modules of a
reference in E4M3 were off by 2^-12 at random, logits up to 4.1 moved by up to 0.41.) That kernels round and multiply as
they should is for `test_float8.py` to see, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme
from mlcbuild.compiler.quantization.int8.scheme import Int8Scheme
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler import schemes
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.running import Array, Library, random_model, store

# norm, query-key-value, rotation, attention, residual; norm, gate and up, activation, residual
ROUNDINGS_A_LAYER = 9
# query-key-value, output; gate and up, down
PRODUCTS_A_LAYER = 4


def check_logits(
    config: dict[str, Any],
    quantization: str | Mapping[str, str],
    directory: Path,
    *,
    kernel_store: Path,
    known: tuple[Any, dict[str, Array]] | None = None,
) -> float:
    """Compile a model with random weights for this processor, and compare the logits of its entry functions with
    those of transformers. Returns the largest difference. `known` are a model of transformers that computes the same,
    and the stored weights, where it has no class of the model's type."""
    scheme = schemes.scheme(quantization) if isinstance(quantization, str) else schemes.mixed(config, quantization)
    model = random_model(config) if known is None else known[0]
    weights = store(model, scheme) if known is None else known[1]
    path = compile_library(config, quantization, CPU_TARGET, directory, kernel_store=kernel_store)
    library = Library.load(path, weights)
    texts = sequences(config["vocab_size"])
    expected = [reference(model, text) for text in texts]
    allowed = bound(config, scheme, float(np.abs(expected[0]).max()))
    return compare(library, texts, expected, allowed=allowed)


def compare(library: Library, texts: Sequence[list[int]], expected: Sequence[Array], *, allowed: float) -> float:
    """Compare the logits of a library's entry functions with those `expected` of two `texts`, of `sequences`: of a
    prompt, of one in pieces, of both texts in batches, token by token, and of all tokens of a pass. Returns the largest
    difference; fails for one above `allowed`."""
    first, second = texts
    one, two = expected
    differences = []

    def check(found: Array, expected: Array) -> None:
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=0, atol=allowed)
        differences.append(float(np.abs(found - expected).max()))

    # One sequence: a prompt, then token by token.
    library.add(0)
    check(library.prefill(0, first[:30]), one[29])
    for place in range(30, 33):
        check(library.decode(0, first[place]), one[place])
    # The other beside it: its prompt and the next of the first in one pass, then two steps of both at once.
    library.add(1)
    mixed = library.embed([*second[:18], first[33]])[None]
    last = np.array([17, 18], "int32")
    logits = library.run("batch_prefill", [1, 0], [18, 1], mixed, last)[0]
    check(logits, np.stack([two[17], one[33]]))
    for step in range(2):
        embedded = library.embed([first[34 + step], second[18 + step]])[:, None]
        logits = library.run("batch_decode", [0, 1], [1, 1], embedded)[:, 0]
        check(logits, np.stack([one[34 + step], two[18 + step]]))
    # Every logit of a pass over several tokens.
    library.add(2)
    check(library.run("batch_verify", [2], [21], library.embed(second)[None])[0], two)
    # A prompt in pieces.
    library.add(3)
    for begin, end in ((0, 13), (13, 14), (14, 37)):
        check(library.prefill(3, first[begin:end]), one[end - 1])
    return max(differences)


def bound(config: dict[str, Any], scheme: QuantizationScheme, largest: float) -> float:
    """The largest difference that roundings explain, of logits up to `largest`."""
    allowed = type_bound(config, scheme)
    if isinstance(scheme, Float8Scheme | Int8Scheme):
        products = config["num_hidden_layers"] * PRODUCTS_A_LAYER
        if isinstance(scheme, Int8Scheme):
            of_activations = math.sqrt(max(config["hidden_size"], config["intermediate_size"])) / 254
        else:
            of_activations = 2.0 ** -(scheme.format.mantissa_bits + 1)
        allowed += math.sqrt(products) * of_activations
    return allowed * largest


def type_bound(config: dict[str, Any], scheme: QuantizationScheme) -> float:
    """What roundings to the scheme's type explain, as a part of the largest logit."""
    roundings = config["num_hidden_layers"] * ROUNDINGS_A_LAYER + 2
    rounding = float(ml_dtypes.finfo(dtype_of(scheme.model_dtype)).eps) / 2
    if scheme.model_dtype != "float32":
        return roundings * rounding
    longest_sum = max(config["hidden_size"], config["intermediate_size"])
    return roundings * math.sqrt(longest_sum) * rounding


def reference(model: Any, tokens: list[int]) -> Array:
    """Logits (n, vocabulary) of every token."""
    import torch

    with torch.no_grad():
        logits: Array = model(torch.tensor([tokens])).logits[0].numpy()
    return logits


def sequences(vocabulary: int) -> tuple[list[int], list[int]]:
    """Two texts, of 37 and of 21 tokens."""
    generator = np.random.default_rng(7)
    first, second = (generator.integers(0, vocabulary, size).tolist() for size in (37, 21))
    return first, second
