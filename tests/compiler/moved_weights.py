"""How far roundings move what a model computes, by the model itself: the float32 library, with weights that are moved
at random by as much as roundings would.

A product's input that is off by a relative u in every place, independently, moves a result Σ w x by as much as weights
that are off by u: both add w x u, place by place, like a random walk. So a draw of moved weights stands for one
rounding of what each product is given; a layer has four products, and nine roundings (`parity`), of which those between
products count no more than those that a product is given. That is the factor 9 / 4 between what draws move and what
roundings do, if all of them add in one direction. Nothing in it is known of the library that is compared, or of its
errors: what is measured is the float32 model's own condition.

It differs from token to token, which no bound for a whole text can follow. A recurrent layer divides what each of its
heads reads from its state by that vector's length (the gated norm of Mamba 2 and of the delta rule), and the vector is
small where what was written cancels: there a rounding counts as much more than elsewhere as the vector is smaller. In a
small Qwen3.5 whose weights are restored from 3 bits, one token of sixty moves by 7 % of the largest logit for
float16's 2⁻¹¹, and the median one by 0.3 %. It does not grow along a text: decays forget, and states are float32.

Activations that a scheme rounds are off by v in place of u: of E4M3, 2⁻⁴, of E5M2, 2⁻³. Signed bytes are off by up to
1/254 of a row's largest, and the largest of n normal numbers is √(2 ln 2n) times the root of their mean square.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import ml_dtypes
import numpy as np

from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme
from mlcbuild.compiler.quantization.int8.scheme import Int8Scheme
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler.parity import PRODUCTS_A_LAYER, ROUNDINGS_A_LAYER
from tests.compiler.running import Array

DRAWS = 16
ROUNDINGS_A_DRAW = ROUNDINGS_A_LAYER / PRODUCTS_A_LAYER


def roundings_move(
    outputs: Callable[[Mapping[str, Array]], Array],
    weights: Mapping[str, Array],
    parameters: Iterable[Parameter],
    scheme: QuantizationScheme,
) -> Array:
    """(tokens,): how far the `outputs` (tokens, n) that a float32 library computes of `weights` may be off for the
    roundings of a scheme."""
    listed, expected = tuple(parameters), outputs(weights)
    moved = [
        np.abs(outputs(_moved(weights, listed, scheme, np.random.default_rng(draw))) - expected).max(axis=-1)
        for draw in range(DRAWS)
    ]
    largest: Array = ROUNDINGS_A_DRAW * np.max(moved, axis=0)
    return largest


def _moved(
    weights: Mapping[str, Array],
    parameters: Iterable[Parameter],
    scheme: QuantizationScheme,
    random: np.random.Generator,
) -> dict[str, Array]:
    rounding = float(ml_dtypes.finfo(dtype_of(scheme.model_dtype)).eps) / 2
    found = {}
    for parameter in parameters:
        numbers = weights[parameter.name]
        factor = 1 + rounding * random.uniform(-1, 1, numbers.shape)
        if scheme.covers(parameter.role) and (of_activations := _of_activations(scheme, numbers.shape[-1])):
            factor *= 1 + of_activations * random.uniform(-1, 1, numbers.shape)
        found[parameter.name] = (numbers * factor).astype(np.float32)
    return found


def rounds_activations(scheme: QuantizationScheme) -> bool:
    return isinstance(scheme, Float8Scheme | Int8Scheme)


def _of_activations(scheme: QuantizationScheme, columns: int) -> float:
    """How far off a rounded activation is, relative to the root of the mean square of its row."""
    if isinstance(scheme, Int8Scheme):
        return math.sqrt(2 * math.log(2 * columns)) / 254
    return 2.0 ** -(scheme.format.mantissa_bits + 1) if isinstance(scheme, Float8Scheme) else 0.0
