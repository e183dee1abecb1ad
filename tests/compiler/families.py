"""One model of `family_cases`, compiled and compared with its reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.compiler import schemes
from tests.compiler.encoders import EncoderLibrary, compare_encoder
from tests.compiler.family_case import FamilyCase
from tests.compiler.parity import compare, reference, sequences
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.resolving import model_of
from tests.compiler.running import Array, Library, random_model, tensors_of

BOUND = 1e-4
"""The largest difference of logits, relative to the largest logit."""


def largest_error(case: FamilyCase, directory: Path, *, kernel_store: Path) -> float:
    """The largest difference of logits in float32, relative to the largest logit: of a prompt, in pieces, in batches of
    unequal lengths, and token by token. Of an encoder, that of hidden states. Fails above the bound."""
    model = random_model(case.model)
    return error_from(model, case, case.checkpoint(tensors_of(model)), directory, kernel_store=kernel_store)


def error_from(
    model: Any, case: FamilyCase, tensors: Mapping[str, Array], directory: Path, *, kernel_store: Path
) -> float:
    """The same of a model of transformers, whose checkpoint has these `tensors`."""
    weights = schemes.stored(case.config, schemes.scheme("q0f32"), tensors)
    path = compile_library(
        case.config, "q0f32", CPU_TARGET, directory, kernel_store=kernel_store, overrides=case.overrides
    )
    vocabulary = case.model["vocab_size"]
    if model_of(case.config).limits.is_encoder:
        return compare_encoder(EncoderLibrary(path, weights), model, vocabulary=vocabulary, bound=BOUND)
    texts = sequences(vocabulary)
    expected = [reference(model, text) for text in texts]
    largest = float(np.abs(expected[0]).max())
    return compare(Library.load(path, weights), texts, expected, allowed=BOUND * largest) / largest
