"""A library that is built from a GGUF file, compared with llama.cpp on the same file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.models.gguf.architecture import gguf_architecture
from mlcbuild.compiler.weights.checkpoint import Checkpoint, sources_of
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.compiler.weights.gguf_weights import GGUFWeights
from mlcbuild.rules.families import families
from tests.compiler import schemes
from tests.compiler.gguf_cases import GGUFCase, file_of
from tests.compiler.llama_cpp import LlamaCppModel
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.resolving import parameters_of
from tests.compiler.running import Library
from tests.compiler.tiny_models import Array

_TEXT, _DECODED = 60, 3


@dataclass(frozen=True, kw_only=True)
class ReadFile:
    """What ImportConfig and ImportWeights make of a file: the `config.json`, and tensors by Hugging Face's names."""

    document: dict[str, object]
    tensors: dict[str, Array]


def read_file(path: Path) -> ReadFile:
    file = GGUFFile(path)
    try:
        document = gguf_architecture(file, families()).config(file)
    finally:
        file.close()
    parameters = parameters_of(document)
    weights = GGUFWeights(path)
    try:
        checkpoint = Checkpoint(weights, parameters, where=str(path))
        tensors = {
            tensor.name: checkpoint.read(tensor.name).numbers("float32") for tensor in sources_of(parameters.parameters)
        }
    finally:
        weights.close()
    return ReadFile(document=document, tensors=tensors)


def largest_error(case: GGUFCase, directory: Path, *, kernel_store: Path) -> float:
    """The largest difference of logits in float32 from llama.cpp's, relative to the largest: of a text in one pass, and
    of its last tokens one by one. Fails above the case's bound."""
    directory.mkdir(parents=True, exist_ok=True)
    path = file_of(directory / "model.gguf", case)
    read = read_file(path)
    vocabulary = case.config["vocab_size"]
    text = np.random.default_rng(7).integers(0, vocabulary, _TEXT).tolist()
    reference = LlamaCppModel(path)
    expected = reference.logits(text, context=case.context)
    reference.close()
    built = compile_library(
        read.document, "q0f32", CPU_TARGET, directory, kernel_store=kernel_store, overrides=case.overrides
    )
    stored = schemes.stored(read.document, schemes.scheme("q0f32"), read.tensors)
    found = _logits(Library.load(built, stored, context=case.context), text)
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    assert case.bound is None or error <= case.bound, f"{error:.2g} is more than {case.bound:g}"
    return error


def _logits(library: Library, text: list[int]) -> Array:
    """Logits (n, vocabulary) of every token; the last ones are decoded."""
    library.add(0)
    begin: Any = len(text) - _DECODED
    first = library.run("batch_verify", [0], [begin], library.embed(text[:begin])[None])[0]
    return np.concatenate([first, [library.decode(0, token) for token in text[begin:]]])
