"""One model of `family_cases`, compiled and compared with its reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from mlcbuild.compiler.weights.checkpoint import Checkpoint, sources_of
from mlcbuild.compiler.weights.source import open_source
from tests.compiler import schemes
from tests.compiler.encoders import EncoderLibrary, compare_encoder
from tests.compiler.family_case import FamilyCase
from tests.compiler.parity import compare, reference, sequences
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.running import Array, Library, random_model, tensors_of

BOUND = 1e-4
"""The largest difference of logits, relative to the largest logit."""


def largest_error(case: FamilyCase, directory: Path, *, kernel_store: Path) -> float:
    """The largest difference of logits in float32, relative to the largest logit: of a prompt, in pieces, in batches of
    unequal lengths, and token by token. Of an encoder, that of hidden states. Fails above the bound. The configuration
    and the tensors are read from files."""
    model = random_model(case.model)
    folder = directory / "checkpoint"
    save(model, case, folder)
    config = json.loads((folder / "config.json").read_text())
    tensors = read_tensors(folder, config)
    return error_from(model, replace(case, config=config), tensors, directory, kernel_store=kernel_store)


def save(model: Any, case: FamilyCase, folder: Path) -> None:
    """A folder as on Hugging Face: as transformers writes it, where it has the family's class, else with the family's
    fields and names."""
    if not case.reference:
        model.save_pretrained(folder)
        return
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(case.config))
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in case.checkpoint(tensors_of(model)).items()}
    save_file(tensors, folder / "model.safetensors")


def read_tensors(path: Path, config: Mapping[str, object]) -> dict[str, Array]:
    """What ImportWeights reads of a checkpoint, in float32, by Hugging Face's names."""
    parameters = parameters_of(config)
    source = open_source(path)
    try:
        checkpoint = Checkpoint(source, parameters, where=str(path))
        wanted = sources_of(parameters.parameters)
        return {tensor.name: checkpoint.read(tensor.name).numbers("float32") for tensor in wanted}
    finally:
        source.close()


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
